"""LOTUS's verbs use the tests' connection as their model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relquery.connection import Connection
from relquery.frames import lotus
from relquery.frames.lotus.models import LM


@pytest.fixture
def configured(con: Connection) -> Iterator[None]:
    with lotus.settings.context(lm=LM(model=con)):
        yield
