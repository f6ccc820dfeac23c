from __future__ import annotations

import pytest

from tests.sql.fakes import FakeBackend
from tests.sql.functions.replies import ANSWERS, answer


@pytest.fixture
def backend() -> FakeBackend:
    ANSWERS.clear()
    return FakeBackend(answer)
