"""The reorder benchmark counts hits on text, compares with the optimum, and adds up costs."""

from __future__ import annotations

import base64
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data import data_path

from relquery.bench import catalogue, reorder_document, reorder_tokens
from relquery.bench import reorder as bench
from relquery.bench.harness import Benchmark, Figure, Settings, document
from relquery.bench.reorder_document import Results
from relquery.bench.reorder_growth import Growth, exponent, last_step, peak_bytes, synthetic
from relquery.bench.reorder_hits import hit_rate, measure, prompts
from relquery.bench.reorder_optimum import Small, compare
from relquery.bench.reorder_prices import ASKS, bills, estimate, repeat
from relquery.bench.reorder_tables import TABLES, RealTable
from relquery.bench.reorder_tokens import llama3
from relquery.cli import main
from relquery.table.cost.weigh import EstimatedTokens
from relquery.table.reorder import reorder

PAIRS = RealTable("squad", "nowhere.csv", 0.5, None, 0.5, bags=(("first", "second"),))


def passages(rows: int) -> pa.Table:
    """Questions with two passages, the same ones in either place."""
    texts = [f"{word} " * 12 for word in ("alpha", "beta", "gamma", "delta")]
    return pa.table(
        {
            "question": [f"what is {row}" for row in range(rows)],
            "first": [texts[row % 3] for row in range(rows)],
            "second": [texts[(row + 1 + row % 2) % 4] for row in range(rows)],
        }
    )


def slow_hit_rate(texts: list[str]) -> float:
    """By the definition: the longest prefix in common with any text sent before."""

    def shared(a: str, b: str) -> int:
        size = min(len(a), len(b))
        return next((i for i in range(size) if a[i] != b[i]), size)

    hits = sum(
        max((shared(text, before) for before in texts[:i]), default=0)
        for i, text in enumerate(texts)
    )
    return hits / max(sum(map(len, texts)), 1)


@given(st.lists(st.text("ab", max_size=6), max_size=12))
def test_the_hit_rate_counts_the_longest_prefix_shared_with_any_text_before(
    texts: list[str],
) -> None:
    assert hit_rate(texts) == pytest.approx(slow_hit_rate(texts))


def test_prompts_are_labelled_cells_in_the_order_sent() -> None:
    table = pa.table({"q": ["x", "y"], "first": [1, 2], "second": ["p", None]})
    schedule = reorder(table, "original")
    sent = prompts(table, [["first", "second"]], schedule, "Ask.", ";")
    assert sent == ["Ask.q: x;passage: 1;passage: p;", "Ask.q: y;passage: 2;passage: ;"]


def test_the_hit_rate_on_text_is_the_one_that_each_method_reports() -> None:
    for reached in measure(PAIRS, passages(40), repeats=1):
        assert reached.hit_rate == pytest.approx(reached.reported, abs=1e-3)
        assert 0 < reached.seconds <= reached.wall


def test_the_shortfall_is_the_share_of_the_optimum_that_tree_misses() -> None:
    small = compare(PAIRS, passages(40), 12)
    assert small.rows == 12
    best = small.reports["ophr"]
    assert best is not None
    assert all(report.phc <= best.phc for report in small.reports.values() if report)
    halved = reorder(passages(12), "original").report
    missed = Small("x", 12, {"ophr": best, "tree": halved}).shortfall
    assert missed == pytest.approx(1 - halved.phc / best.phc)
    assert missed > 0


def test_an_optimum_that_is_not_proved_gives_no_shortfall() -> None:
    small = compare(PAIRS, passages(1200), 1100)
    assert small.reports["ophr"] is None
    assert small.shortfall is None


def test_the_synthetic_table_repeats_and_is_skewed_and_correlated() -> None:
    table = synthetic(3_000, seed=1)
    assert table.equals(synthetic(3_000, seed=1))
    assert not table.equals(synthetic(3_000, seed=2))
    assert table.shape == (3_000, 10)
    distinct = {name: len(table[name].unique()) for name in table.column_names}
    assert distinct["note"] == 3_000
    cities = table.group_by("city").aggregate([("state", "count_distinct"), ("note", "count")])
    assert set(cities["state_count_distinct"].to_pylist()) == {1}
    assert max(cities["note_count"].to_pylist()) > 20 * 3_000 / distinct["city"]


@pytest.mark.parametrize("power", [0.9, 1.0, 1.3])
def test_the_exponent_is_the_power_of_n_log_n(power: float) -> None:
    sizes = [1_000, 10_000, 100_000]
    seconds = [1e-6 * (size * math.log(size)) ** power for size in sizes]
    assert exponent(sizes, seconds) == pytest.approx(power)


def test_a_constant_cost_hides_no_growth_in_the_last_step() -> None:
    sizes = [1_000, 10_000, 1_000_000]
    quadratic = [5 + 1e-12 * size**2 for size in sizes]
    assert last_step(sizes, [size * math.log(size) for size in sizes]) == pytest.approx(1)
    assert exponent(sizes[:2], quadratic[:2]) < 0.01
    assert last_step([10**6, 10**7], [5 + 1e-12 * n**2 for n in (10**6, 10**7)]) > 1.3


def test_values_are_repeated_as_text() -> None:
    table = repeat(pa.table({"a": [1, None], "b": ["x", "y"]}), 3)
    assert table.to_pydict() == {"a": ["1 1 1", "  "], "b": ["x x x", "y y y"]}


def test_estimates_are_those_of_the_paper_at_its_hit_rates() -> None:
    shares = estimate({"movies": (0.346, 0.857), "beer": (0.499, 0.801)})["gpt-4o-mini"]
    assert [f"{share:.0%}" for share in shares] == ["31%", "20%"]


def test_bills_count_what_the_schedule_itself_is_billed() -> None:
    rows = repeat(passages(24), 5)
    encode, ask = EstimatedTokens(), ASKS["squad"]
    found = bills(PAIRS, rows, ["deepseek-flash", "gpt-4o-mini"], encode)
    schedule = reorder(rows, "tree", (), PAIRS.bags, "deepseek-flash", tokenizer=encode, prefix=ask)
    assert schedule.report.bill is not None
    assert found[0].of["tree by price"].usd == pytest.approx(schedule.report.bill.usd)
    assert found[0].saved("original") == 0 < found[0].saved("tree by price")
    assert found[0].over("ggr") <= 1
    assert found[1].of["original"].read == 0  # prompts are shorter than what is cached


RANKS = [bytes([byte]) for byte in range(256)] + [b"th", b"he", b"the", b" the", b"\n\n"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "ranks"
    lines = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(RANKS)]
    path.write_bytes(b"\n".join(lines))
    return path


def test_bytes_merge_by_rank_inside_a_piece(ranks: Path) -> None:
    encode = llama3(ranks)
    assert encode is not None
    first, second = encode(["the thé", "xthe\nthe\n\nthe 12345"])
    assert spell(first) == [b"the", b" ", b"th", b"\xc3", b"\xa9"]
    digits = [b" ", b"1", b"2", b"3", b"4", b"5"]
    assert spell(second) == [b"x", b"the", b"\n", b"the", b"\n\n", b"the", *digits]


def spell(ids: object) -> list[bytes]:
    return [RANKS[token] for token in np.asarray(ids).tolist()]


@settings(max_examples=50)
@given(values=st.lists(st.text("the 1\n.", min_size=1, max_size=8), min_size=1, max_size=6))
def test_lines_encoded_apart_give_the_tokens_of_the_whole(ranks: Path, values: list[str]) -> None:
    prompt = "".join(f"label: {value}\n" for value in values)
    encode = llama3(ranks)
    assert encode is not None
    by_line = np.asarray(encode([prompt])[0]).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reorder_tokens, "LINE", re.compile("(?!)"))
        whole = llama3(ranks)
        assert whole is not None
        assert np.asarray(whole([prompt])[0]).tolist() == by_line


def test_without_the_file_there_are_no_such_tokens(tmp_path: Path) -> None:
    assert llama3(tmp_path / "absent") is None


@pytest.mark.data
def test_llama_3_tokens_are_those_of_its_models() -> None:
    encode = llama3(data_path("tokenizers/llama3_tokenizer.model"))
    assert encode is not None
    assert np.asarray(encode(["Hello world"])[0]).tolist() == [9906, 1917]


GROWN = [Growth(1_000, 0.01, 0.1, 0.05, 0.4), Growth(2_000, 0.02, 0.22, 0.1, 0.5)]


def described(figures: list[Figure]) -> dict[str, object]:
    return document(Benchmark("reorder", "", lambda settings, say: iter(())), SETTINGS, figures)


SETTINGS = Settings(quick=False, data=Path("nowhere"))


def test_the_document_shows_what_was_missed_and_its_picture(tmp_path: Path) -> None:
    results = Results(growth=GROWN)
    said: list[str] = []
    figures = [Figure("slow", 2.0, 1.0, at_least=False, note="twice"), Figure("x", None, 1.0)]
    reorder_document.write(tmp_path, results, described(figures), 7, said.append)
    text = (tmp_path / "reorder.md").read_text(encoding="utf-8")
    assert "| `slow` | 2 | <= 1 | **no** | twice |" in text
    assert "| `x` | - | >= 1 | not measured |" in text
    assert "seed 7" in text
    assert "(reorder_growth.png)" in text
    assert (tmp_path / "reorder_growth.png").read_bytes().startswith(b"\x89PNG")
    assert len(said) == 2


def test_without_matplotlib_the_document_has_no_picture_and_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said: list[str] = []
    reorder_document.write(tmp_path, Results(growth=GROWN), described([]), 0, said.append)
    assert ".png" not in (tmp_path / "reorder.md").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["reorder.md"]
    assert "pip install relquery[bench]" in said[0]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK_SIZES", (50, 100))


def test_without_tables_the_benchmark_measures_the_rest_and_says_what_is_absent(
    tiny: None, tmp_path: Path
) -> None:
    run = Settings(quick=True, data=tmp_path / "absent", write=tmp_path / "out")
    figures = {figure.name: figure for figure in bench.run(run, lambda text: None)}
    assert all(figure.value is None for figure in figures.values())
    for table in TABLES:
        assert table.file in figures[f"{table.name}_seconds"].note
    assert "for up to 100 rows" in figures["million_rows_gib"].note
    assert (tmp_path / "out" / "reorder.md").exists()


def test_a_fresh_process_tells_the_most_memory_that_it_held() -> None:
    assert 2**26 < peak_bytes(50, 0) < 2**32


@pytest.mark.parametrize(
    ("options", "written"),
    [((), "docs/benchmarks"), (("--quick",), None), (("--quick", "--write", "here"), "here")],
)
def test_documents_go_where_the_project_keeps_them_unless_told_otherwise(
    options: tuple[str, ...], written: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path | None] = []

    def run(settings: Settings, say: object) -> Iterator[Figure]:
        seen.append(settings.write)
        yield Figure("x", 1.0, 1.0)

    (tmp_path / "docs" / "benchmarks").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "BENCHMARKS", (Benchmark("fake", "", run),))
    monkeypatch.setattr(sys, "argv", ["relquery", "bench", "fake", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert seen == [Path(written) if written else None]
