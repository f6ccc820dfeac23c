"""What a call sends is read back, whatever the order of a bag, and with modules or without."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

from benchmarks.queries.million import AtOnce
from benchmarks.queries.prompts import read
from relquery.backends.base import Answers
from relquery.connection import connect
from relquery.prompt import Prompt, Sampling


class Listening(AtOnce):
    """Keeps the last prompt."""

    sent: Prompt = ()

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        (self.sent,) = prompts
        return super().answer(prompts, sampling)


@pytest.mark.parametrize("items", ["['b', 'a', NULL]", "['a', NULL, 'b']"])
@pytest.mark.parametrize("form", ["BAG({})", "MODULE(BAG({}))"])
def test_items_of_a_bag_are_one_field_in_any_order(items: str, form: str) -> None:
    backend = Listening()
    with closing(connect(backend, ledger=None)) as connection:
        connection.sql(f"SELECT LLM('Why?', {form.format(items)} AS item, 'x' AS one)")
    asked = read(backend.sent)
    assert asked is not None
    assert asked.prompt == "Why?"
    assert asked.fields == {"item": ["a", "b", None], "one": "x"}
