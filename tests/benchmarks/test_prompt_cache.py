"""The benchmark of prompt modules compares the same prompts, and writes all its parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.prompt_cache import first_token
from benchmarks.prompt_cache.benchmark import BENCHMARK
from benchmarks.prompt_cache.sizes import QUERIES, Sizes
from benchmarks.spans.setup import load_model
from relquery.connection import Connection
from relquery.markup.schemas import PromptResult
from tests.benchmarks.conftest import Quick

TINY = Sizes(
    (("10m", "random:layers=1,hidden=32,heads=2,ffn=32,context=4096"),),
    (64, 128),
    module=32,
    rounds=1,
    questions=3,
    cases=4,
    schema=20,
    each=10,
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("lengths", "documents", "quality", "schema"):
        monkeypatch.setattr(f"benchmarks.prompt_cache.{part}.choose", lambda quick: TINY)


def test_a_run_writes_all_parts(tmp_path: Path, quick: Quick) -> None:
    passages = [{"title": "One", "text": f"Passage <{n}> & more."} for n in range(3)]
    rows = [{"ctxs": passages, "question": f"Who is {n}?", "answers": []} for n in range(4)]
    (tmp_path / "longctx").mkdir()
    (tmp_path / "longctx/musique_s.json").write_text(json.dumps(rows), encoding="utf-8")
    figures, page = quick(BENCHMARK)
    names = ("hit_10m", "memory_10m", "disk_10m", "documents_10m", "quality_label")
    assert {*names, "schema_seconds"} <= set(figures)
    assert "| 128 |" in page


def test_each_side_finds_its_states_where_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bool, PromptResult]] = []
    ask = Connection.prompt

    def spy(connection: Connection, text: str, **sampling: Any) -> PromptResult:
        result = ask(connection, text, **sampling)
        asked.append(("<m" in text, result))
        return result

    monkeypatch.setattr(Connection, "prompt", spy)
    model = load_model(TINY.models[0][1], QUERIES, Path("nowhere"))
    rows = list(first_token.measure(model, TINY, 0, tmp_path, lambda text: None))
    assert [row.tokens for row in rows] == list(TINY.lengths)
    by_source: dict[tuple[str, ...], list[PromptResult]] = {}
    for imports, result in asked:
        if imports:
            sources = {source for used in result.used[:-1] for source in used.sources}
            by_source.setdefault(tuple(sorted(sources)), []).append(result)
    rounds = len(TINY.lengths) * (TINY.rounds + 1)
    counts = {sources: len(results) for sources, results in by_source.items()}
    assert counts == dict.fromkeys([(), ("cache",), ("memory",), ("disk",)], rounds)
    for source, results in by_source.items():
        for result in results:
            kept = result.answer.prompt_tokens - result.answer.cached_tokens
            assert (kept > 60) == (not source)  # only the plain text is computed
