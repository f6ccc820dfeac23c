"""Each part of the spans benchmark measures the path that users take, and says what it found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.spans import bulk as spans_bulk
from benchmarks.spans import decode as spans_decode
from benchmarks.spans import documents as spans_rag
from benchmarks.spans import moves as spans_moves
from benchmarks.spans import needles as spans_needles
from benchmarks.spans import nested as spans_nested
from benchmarks.spans.benchmark import BENCHMARK
from benchmarks.spans.bulk import Bulk
from benchmarks.spans.documents import FirstTokens
from benchmarks.spans.needles import Found
from benchmarks.spans.nested import Judged
from benchmarks.spans.setup import PASSAGES, Writer, load_model, read_passages, sides
from benchmarks.spans.sizes import PROCESSOR, QUICK, Sizes
from relquery import connect, span
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.connection import Connection
from relquery.prompt import Answer, Prompt, Sampling
from tests.benchmarks.conftest import Quick, by_name

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

TINY = Sizes(
    "random:layers=1,hidden=16,heads=1,ffn=16", repeats=1, documents=(1, 3), document_tokens=32,
    cache_tokens=1024, executions=2, others=1, fan_outs=(1, 3), temperatures=(0.0, 0.5),
    inner_tokens=4, queries=4, spans=(16,), steps=4, hays=(0,), cases=1, generated_hays=(2,),
    generated_cases=1,
)  # fmt: skip
A, B, C = "a b c\n", "d e f\n", "g h i\n"
ROWS = [[A, B], [B, C], [C, A], [A, C]]


def silent(text: str) -> None:
    """Says nothing."""


@pytest.fixture(scope="module")
def model() -> ServedModel:
    return load_model(TINY.model, TINY.queries, Path("nowhere"))


@pytest.mark.parametrize("tokens", [2, 32, 512])
def test_a_document_has_as_many_tokens_as_asked_alone_and_among_others(
    model: ServedModel, tokens: int
) -> None:
    texts = Writer(model, 1).documents(3, tokens)
    for text in (*texts, "".join(texts)):
        ids = model.tokenizer.encode([text])[0]
        assert len(ids) == tokens * text.count("\n")


def test_documents_repeat_with_their_seed_and_differ_from_one_another(model: ServedModel) -> None:
    writer = Writer(model, 1)
    first = writer.documents(4, 32)
    assert first == Writer(model, 1).documents(4, 32)
    assert len(set(first)) == 4
    assert sorted(writer.shuffled(first)) == sorted(first) != writer.shuffled(first)


def test_a_hit_finds_all_documents_cached_and_plain_text_none(model: ServedModel) -> None:
    rows = list(spans_rag.measure(model, TINY, 0, silent))
    assert [row.documents for row in rows] == [1, 3]
    for row in rows:
        documents = row.documents * TINY.document_tokens
        # All questions begin with the same word.
        assert documents <= row.cached <= documents + 8 < row.tokens
    found = by_name(spans_rag.figures(rows))
    assert set(found) == {"rag_hit_16", "rag_miss_16", "rag_plain_at_1"}
    assert min(found.values()) > 0


def test_rag_figures_are_of_most_documents_and_the_worse_of_both_at_one() -> None:
    rows = [FirstTokens(1, 2.0, 4.0, 1.0, 5, 6), FirstTokens(16, 40.0, 10.0, 2.0, 5, 6)]
    expected = {"rag_hit_16": 20.0, "rag_miss_16": 4.0, "rag_plain_at_1": 0.5}
    assert by_name(spans_rag.figures(rows)) == expected


def test_judges_read_all_answers_and_the_figures_row_comes_last(model: ServedModel) -> None:
    rows = list(spans_nested.measure(model, TINY, 0, silent))
    settings = [(row.fan_out, row.temperature) for row in rows]
    assert settings == [(1, 0.0), (1, 0.5), (3, 0.0), (3, 0.5)]
    assert [len(row.ours) for row in rows] == [1, 1, 1, 2]
    assert all(seconds > 0 for row in rows for seconds in (*row.plain, *row.ours))
    inner = 2 * spans_nested.INSTRUCTION_TOKENS + TINY.inner_tokens
    assert rows[-1].our_tokens > 3 * inner
    assert rows[-1].cached >= 3 * (inner - 2 * EngineConfig().block_size)
    found = by_name(spans_nested.figures(rows))
    assert set(found) == {"nested_ttft_24", "nested_p99_24"}
    assert min(found.values()) > 0


def test_the_nested_figures_are_a_median_and_a_low_percentile_of_ratios() -> None:
    plain = tuple(float(i) for i in range(101))
    row = Judged(24, 0.5, plain, (1.0,) * 101, 1, 1, 1)
    assert by_name(spans_nested.figures([row])) == {"nested_ttft_24": 50.0, "nested_p99_24": 1.0}


def test_an_answer_that_several_read_is_text_for_each(model: ServedModel) -> None:
    inner = span.generate("say", max_tokens=2)  # at temperature 0: one generation, read by all
    query = span.generate(span.plus(span.repeat(3, inner)), "best?", max_tokens=1)
    with sides(model, EngineConfig(cache_tokens=256), 1) as (connection,):
        texts = spans_nested._answers(connection.run(query), 3)
    assert len(texts) == 3
    assert len(set(texts)) == 1
    assert "\ufffd" not in texts[0]


def test_the_bound_of_a_bulk_counts_each_passage_once(model: ServedModel) -> None:
    passages = [passage for row in ROWS for passage in row]
    length = [len(model.tokenizer.encode([text])[0]) for text in passages]
    distinct = [len(model.tokenizer.encode([text])[0]) for text in set(passages)]
    assert spans_bulk.count_tokens(model, ROWS) == (sum(length), sum(distinct))
    bulk = Bulk(
        "x", 4, 900, 400, plain=30.0, ordered=24.0, sparse=20.0, given=15.0, ours=12.0,
        given_cached=100, cached=300,
    )  # fmt: skip
    assert (bulk.bound, bulk.sparse_gain, bulk.speedup) == (2.25, 1.5, 2.5)
    assert by_name(spans_bulk.figures(bulk)) == {
        "x": pytest.approx(2.5 / 3.375),
        "x_tokens": 0.6,
        "x_ordered": 2.0,
    }
    unlike = replace(bulk, tokens=400)
    assert by_name(spans_bulk.figures(unlike))["x_tokens"] is None


def test_a_bulk_reuses_what_its_queries_share(model: ServedModel) -> None:
    bulk = spans_bulk.measure(model, "x", ROWS, silent)
    tokens, distinct = spans_bulk.count_tokens(model, ROWS)
    assert (bulk.queries, bulk.tokens, bulk.distinct) == (4, tokens, distinct)
    assert bulk.cached == bulk.given_cached == tokens - distinct
    found = by_name(spans_bulk.figures(bulk))
    assert set(found) == {"x", "x_tokens", "x_ordered"}
    assert min(found.values()) > 0


def asked_of(connection: Connection) -> list[str]:
    """The prompts as text, as they are asked from now on."""
    backend: Any = connection.backend
    texts: list[str] = []

    def answer(prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        texts.extend("".join(str(span.content) for span in prompt) for prompt in prompts)
        yield from EmbeddedBackend.answer(backend, prompts, sampling)

    backend.answer = answer
    return texts


def test_all_sides_of_a_bulk_are_asked_the_same_text(model: ServedModel) -> None:
    asked: dict[str, list[str]] = {}
    rows = [*ROWS, [C], [C, A, B]]
    for name in ("_plain", "_ordered", "_given", "_in_bulk"):
        with sides(model, EngineConfig(cache_tokens=1024), 1) as (connection,):
            asked[name] = asked_of(connection)
            getattr(spans_bulk, name)(connection, rows)
    assert asked["_plain"] == asked["_given"]
    assert sorted(asked["_in_bulk"]) == sorted(asked["_plain"])

    def as_sets(prompts: list[str]) -> list[list[str]]:
        return sorted(sorted(prompt.split("\n")) for prompt in prompts)

    assert as_sets(asked["_ordered"]) == as_sets(asked["_plain"])
    assert asked["_ordered"] != asked["_plain"]


def test_a_span_is_used_where_it_was_computed_and_elsewhere(model: ServedModel) -> None:
    row = spans_moves.measure(model, 16, 1, silent)
    assert row.tokens == 16
    assert min(row.plain, row.queries) > 0


def test_both_sides_decode_after_the_same_tokens(model: ServedModel) -> None:
    row = spans_decode.measure(model, TINY, 0)
    assert (row.spans, row.tokens) == (3, 32)
    figure = spans_decode.figure(row)
    assert figure.name == "decode_with_16_spans"
    assert figure.value


def test_needles_are_asked_of_one_judge_and_of_a_tree(model: ServedModel) -> None:
    spec = "random:layers=1,hidden=16,heads=1,ffn=16"
    assert list(spans_needles.measure(TINY, 0, silent, spec)) == [
        Found(0, 1, 0.0, 0.0),
        Found(2, 1, 0.0, 0.0, generated=True),
    ]


def test_generated_candidates_are_drawn_from_their_texts_and_the_judge_reads_these() -> None:
    case = [["a Anna", "b Boris"], ["c Clara", "d David"]]
    with connect("random:layers=1,hidden=16,heads=1,ffn=16", ledger=None) as connection:
        result = connection.run(spans_needles.ask(case))
    drawn = [str(generation.answer.text) for generation in result.report.generations[:-1]]
    assert sorted(spans_needles._candidates(case, result).split("\n")) == sorted(drawn)
    assert all(any(text in texts for text in drawn) for texts in case)


def test_the_needle_figure_is_the_trees_share_where_one_judge_is_first_lost() -> None:
    rows = [Found(0, 10, 1.0, 1.0), Found(8, 10, 0.4, 0.9), Found(16, 10, 0.1, 0.2)]
    given, generated = spans_needles.figures([*rows, Found(8, 5, 0.2, 0.8, generated=True)])
    assert (given.value, generated.value) == (0.9, 0.8)
    never, none = spans_needles.figures(rows[:1])
    assert never.value is none.value is None
    assert "at every amount of hay" in never.note


def test_the_benchmark_writes_what_it_found_and_says_what_is_absent(
    tmp_path: Path, quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "longctx"
    data.mkdir()
    lines = [json.dumps({"row": i, "docs": row}) for i, row in enumerate(ROWS)]
    (tmp_path / PASSAGES["bulk_nq"]).write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr("benchmarks.spans.sizes.choose", lambda quick: TINY)
    figures, text = quick(BENCHMARK)
    assert list(figures) == [
        *("rag_hit_16", "rag_miss_16", "rag_plain_at_1", "nested_ttft_24", "nested_p99_24"),
        *("bulk_2wiki", "bulk_nq", "bulk_nq_tokens", "bulk_nq_ordered", "decode_with_16_spans"),
        *("locality_tree_right", "locality_generated_right"),
    ]
    assert "absent" in figures["bulk_2wiki"].note
    assert "at a small size" in figures["bulk_nq"].note
    judged = {name for name, figure in figures.items() if figure.value is not None}
    assert judged == {"bulk_nq_tokens"}, "the tiny sizes ask for names of the demo model"
    assert all(f"`{name}`" in text for name in figures)
    assert (tmp_path / "spans_moves.png").read_bytes().startswith(b"\x89PNG")


def test_passages_are_lines_of_the_first_queries(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"docs": ["a", "b"]}\n{"docs": ["c"]}\n{"docs": ["d"]}\n', encoding="utf-8")
    assert read_passages(path, 2) == [["a\n", "b\n"], ["c\n"]]
    assert read_passages(tmp_path / "absent", 2) == []


@pytest.mark.parametrize("sizes", [PROCESSOR, QUICK])
def test_figures_are_measured_where_their_names_say(sizes: Sizes) -> None:
    assert (sizes.documents[0], sizes.documents[-1]) == (1, 16)
    assert sizes.document_tokens == 512
    assert sizes.fan_outs[-1] == 24
    assert spans_nested.JUDGED in sizes.temperatures
