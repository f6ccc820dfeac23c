"""A concurrent sender gets hits only in waves, and the fewest that serve nearly everything."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import ConfigError
from relquery.reordering.prompts.prompts import Prompts, Template
from relquery.reordering.prompts.waves import Sharing, arrange, served
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Schedule
from tests.reordering import reference
from tests.reordering.prompts import providers
from tests.reordering.strategies import PAID, letters, tables


def nested(rows: int = 40, **options: Any) -> Schedule:
    """Groups in groups: by author, and by title."""
    table = {
        "author": [f"author {i % 2} " * 20 for i in range(rows)],
        "title": [f"title {i % 8} " * 20 for i in range(rows)],
        "review": [f"review {i}" for i in range(rows)],
    }
    return reorder(table, "fixed", weight=PAID, tokenizer=letters, **options)


def sent_in(waves: Iterable[Prompts]) -> list[list[int]]:
    return [wave.rows.tolist() for wave in waves]


def read_by_a_concurrent_sender(schedule: Schedule, waves: int, folder: Path) -> int:
    """Tokens that Anthropic's cache serves for the files of a batch in waves."""
    written = schedule.write_batch(
        folder / "b.jsonl", "Is it?", "anthropic", model="m", waves=waves
    )
    sent = [providers.requests(wave) for wave in written.waves]
    return providers.caches(sent, len, PAID.minimum)


def test_a_concurrent_sender_hits_only_in_waves(tmp_path: Path) -> None:
    schedule = nested()
    one_by_one = schedule.prompts("Is it?").bill
    assert one_by_one is not None
    read = [read_by_a_concurrent_sender(schedule, waves, tmp_path) for waves in (1, 2, 3, 4)]
    assert read[0] == 0
    assert 0 < read[1] < read[2]
    assert read[3] == one_by_one.read
    first, rest = schedule.waves("Is it?", 2)
    titles = [prompt.parts[:3] for prompt in first]
    assert len(set(titles)) == len(titles) == 8  # the first of each group
    assert len(rest) == 32
    authors = [prompt.parts[:2] for prompt in schedule.waves("Is it?", 3)[0]]
    assert len(set(authors)) == len(authors) == 2


@given(tables(bags=True), st.integers(1, 4), st.booleans())
def test_waves_send_every_row_once_with_its_marks(
    table: reference.Table, most: int, priced: bool
) -> None:
    weight = PAID if priced else "tokens"
    schedule = reorder(table.columns, bags=table.bags, weight=weight, tokenizer=letters, seconds=0)
    template = Template("{fields}\nYes?", system="Be brief.")
    waves = schedule.waves(template, most)
    assert 1 <= len(waves) <= most
    rows = [row for wave in sent_in(list(waves)) for row in wave]
    assert sorted(rows) == list(range(len(table.cells)))
    alone = {prompt.row: prompt for prompt in schedule.prompts(template)}
    assert all(prompt == alone[prompt.row] for wave in waves for prompt in wave)
    assert all(list(wave.rows) == [r for r in schedule.rows if r in wave.rows] for wave in waves)


@given(tables(bags=True))
def test_enough_waves_read_what_sending_one_by_one_reads(
    tmp_path_factory: pytest.TempPathFactory, table: reference.Table
) -> None:
    schedule = reorder(table.columns, bags=table.bags, weight=PAID, tokenizer=letters, seconds=0)
    bill = schedule.prompts("Is it?").bill
    assert bill is not None
    folder = tmp_path_factory.getbasetemp()
    assert read_by_a_concurrent_sender(schedule, 99, folder) == bill.read
    assert read_by_a_concurrent_sender(schedule, 1, folder) == 0


@st.composite
def sharings(draw: st.DrawFn) -> Sharing:
    """What rows of up to three blocks share, as `share` finds it; some prefixes are not cached."""
    rows = draw(st.lists(st.tuples(*[st.integers(0, 1)] * 3), min_size=1, max_size=7))
    first = [[[r[: k + 1] for r in rows].index(row[: k + 1]) for k in range(3)] for row in rows]
    long = draw(st.lists(st.booleans(), min_size=8, max_size=8))
    cached = [[long[hash(row[: k + 1]) % 8] for k in range(3)] for row in rows]
    ends = np.cumsum(draw(st.lists(st.integers(1, 5), min_size=3, max_size=3)))
    return Sharing(
        np.array(first, np.int64), np.array(cached), np.tile(ends.astype(np.int64), (len(rows), 1))
    )


def read_in(sharing: Sharing, waves: tuple[int, ...]) -> int:
    """Tokens read, whoever of an earlier wave has written them."""
    total = 0
    for i, wave in enumerate(waves):
        total += max(
            (
                int(sharing.ends[i, k])
                for k in range(3)
                if sharing.cached[i, k]
                and any(
                    waves[j] < wave and sharing.cached[j, k]
                    for j in range(len(waves))
                    if sharing.first[j, k] == sharing.first[i, k]
                )
            ),
            default=0,
        )
    return total


def keeps_the_first(sharing: Sharing, waves: tuple[int, ...]) -> bool:
    """Whether no request is sent before the first of a group that it is in."""
    firsts = zip(sharing.first.tolist(), sharing.cached.tolist(), waves, strict=True)
    return all(
        waves[first] <= wave
        for row, cached, wave in firsts
        for first, is_cached in zip(row, cached, strict=True)
        if is_cached
    )


@given(sharings(), st.integers(1, 3))
def test_no_other_waves_with_the_same_first_requests_read_more(sharing: Sharing, most: int) -> None:
    found = tuple(arrange(sharing, most).tolist())
    assert served(sharing, np.array(found)) == read_in(sharing, found)
    assert keeps_the_first(sharing, found)
    every = product(range(most), repeat=len(found))
    best = max(read_in(sharing, waves) for waves in every if keeps_the_first(sharing, waves))
    assert read_in(sharing, found) == best


def test_by_default_there_are_as_few_waves_as_serve_nearly_everything() -> None:
    assert len(nested().waves("Is it?")) == 3
    alike = reorder({"a": ["x" * 50] * 9}, "original", weight=PAID, tokenizer=letters)
    assert sent_in(alike.waves("Is it?")) == [[0], list(range(1, 9))]
    different = reorder({"a": list("abc")}, "original", weight=PAID, tokenizer=letters)
    assert sent_in(different.waves("")) == [[0, 1, 2]]
    assert sent_in(reorder({"a": []}).waves("Is it?")) == [[]]


def test_only_prefixes_of_the_minimum_are_worth_a_wave() -> None:
    table = {"a": ["x" * 10] * 3, "b": list("123")}
    schedule = reorder(table, "original", tokenizer=letters)
    assert sent_in(schedule.waves("")) == [[0], [1, 2]]
    assert sent_in(schedule.waves("", minimum=13)) == [[0], [1, 2]]
    assert sent_in(schedule.waves("", minimum=15)) == [[0, 1, 2]]
    assert sent_in(schedule.waves("", price="gpt-4o-mini")) == [[0, 1, 2]]


def test_wrong_settings_are_refused() -> None:
    wrong: dict[str, dict[str, Any]] = {
        "waves is 0; it must be a whole number of at least 1": {"most": 0},
        r"waves is 1\.5": {"most": 1.5},
        "minimum is -1; it must be a whole number of at least 0": {"minimum": -1},
    }
    for message, settings in wrong.items():
        with pytest.raises(ConfigError, match=message):
            nested().waves("", **settings)
