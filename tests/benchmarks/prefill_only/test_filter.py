"""A filter gives the same rows whether its labels are scored or decoded, and is timed both ways."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.prefill_only.filter import (
    FILE,
    SCORED,
    SIDES,
    SKIPPED,
    STEPS,
    Filtered,
    Run,
    Sizes,
    StepByStep,
    figures,
    find_labels,
    measure,
)
from relquery.backends.local import core
from relquery.backends.local import labels as choices
from relquery.config import EngineConfig
from relquery.engine.executor import SimulatedExecutor, VirtualClock
from relquery.engine.loop import Loop
from relquery.engine.requests.request import Request, Rules
from relquery.model.load import load
from relquery.model.networks.random import train_tokenizer
from relquery.model.served import ServedModel
from tests.benchmarks.conftest import by_name

SMALL = Sizes("random:layers=1,hidden=32,heads=2", 400, rows=12, tokens=(1, 3), rounds=1)
WORDS = "a fine film with a weak plot and some great scenes that nobody will see again soon"


def reviews() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.permutation(WORDS.split())) for _ in range(40)]


@pytest.fixture(scope="module")
def model() -> ServedModel:
    return load(SMALL.model, tokenizer=train_tokenizer(reviews(), SMALL.vocabulary))


def run(seconds: float, *numbers: int, errors: int = 0) -> Run:
    return Run(seconds, numbers, 100, 60, errors)


def filtered(tokens: int, scored: float, steps: float, skipped: float) -> Filtered:
    runs: dict[str, tuple[Run, ...]] = {
        side: (run(seconds, 1, 2),)
        for side, seconds in zip(SIDES, (scored, steps, skipped), strict=True)
    }
    return Filtered(tokens, ("x", "y"), 4, runs)


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_labels_part_at_their_last_token(model: ServedModel, tokens: int) -> None:
    one, other = (model.tokenizer.encode([label])[0] for label in find_labels(model, tokens, 0))
    assert len(one) == len(other) == tokens
    assert one[:-1] == other[:-1]
    assert one[-1] != other[-1]


@pytest.mark.parametrize(("loop", "steps"), [(StepByStep, 4), (Loop, 2)])
def test_a_decoder_without_look_ahead_spends_a_step_on_every_token_and_on_the_end(
    loop: type[Loop], steps: int
) -> None:
    engine = loop(SimulatedExecutor(VirtualClock()), EngineConfig(), VirtualClock())
    labels = ((5, 6, 7), (5, 6, 8))
    request = Request(0, np.arange(4, dtype=np.int32), 3, rules=Rules(frozenset({9}), labels))
    engine.submit(request)
    taken = 0
    while request.finish is None:
        engine.step()
        taken += 1
    assert tuple(request.output) in labels
    assert taken == steps


def test_what_has_no_labels_ends_as_ever() -> None:
    engine = StepByStep(SimulatedExecutor(VirtualClock()), EngineConfig(), VirtualClock())
    request = Request(0, np.arange(4, dtype=np.int32), 3)
    engine.submit(request)
    assert list(engine.run()) == [request]
    assert len(request.output) == 3


def test_all_sides_answer_alike_and_each_is_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Counter[type[Loop]] = Counter()
    take_in = Loop._take_in
    unpatched = vars(core)["Loop"], choices.SCORED_UNASKED

    def counting(self: Loop, request: Request, *given: object) -> bool:
        taken[type(self)] += bool(request.rules.labels) and request.trie is None
        return bool(take_in(self, request, *given))  # type: ignore[arg-type]

    monkeypatch.setattr(Loop, "_take_in", counting)
    path = tmp_path / FILE
    path.parent.mkdir()
    pq.write_table(pa.table({"reviewcontent": reviews()}), path)
    said: list[str] = []
    found = measure(SMALL, tmp_path, 0, said.append)
    assert [at.tokens for at in found] == [1, 3]
    assert all(at.equal == 1 and at.rows == 12 and len(at.runs) == 3 for at in found)
    # Of a label of one token and of three: that, and the end; where it is decided.
    rows_run = 12 + 8  # with those of the warm-up
    assert taken == {StepByStep: rows_run * (2 + 4), Loop: rows_run * (1 + 2)}
    assert (vars(core)["Loop"], choices.SCORED_UNASKED) == unpatched
    assert len(said) == 2


def test_without_the_table_there_are_no_values(tmp_path: Path) -> None:
    said: list[str] = []
    assert measure(SMALL, tmp_path, 0, said.append) == []
    assert "is absent" in said[0]
    found = list(figures([]))
    assert len(found) == 4
    assert all(figure.value is None and "absent" in figure.note for figure in found)


def test_figures_are_ratios_to_the_scored_side() -> None:
    found = [filtered(1, 2.0, 2.5, 2.1), filtered(2, 2.0, 3.0, 2.2), filtered(3, 2.0, 4.0, 2.4)]
    assert by_name(figures(found)) == {
        "filter_speedup_two_tokens": 1.5,
        "filter_speedup_three_tokens": 2.0,
        "filter_one_token": 1.05,
        "filter_same_answers": 1.0,
    }


def test_a_row_that_one_run_answers_otherwise_is_seen() -> None:
    runs = {SCORED: (run(1, 1, 2), run(1, 1, 2)), STEPS: (run(1, 1),), SKIPPED: (run(1, 1, 2),)}
    assert Filtered(2, ("x", "y"), 4, runs).equal == 0.75
    runs[STEPS] = (run(1, 1, 2, errors=1),)
    assert Filtered(2, ("x", "y"), 4, runs).equal == 0.0
