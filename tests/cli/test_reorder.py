"""`relquery reorder`: what a person types, sees, and gets as files and exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.cli.reorder import read_dependency
from relquery.cli.tables import read_text, split_names
from relquery.errors import ConfigError, TableError, UnknownColumnError
from relquery.reordering.dependencies import Dependency
from relquery.reordering.reorder import reorder
from tests.cases import cases
from tests.cli.conftest import Run

Figures = Callable[..., dict[str, Any]]
ROWS = "".join(f"0{i % 4},{i % 4}.50,city {i % 4},text {i}\n" for i in range(60))


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = tmp_path / "shop.csv"
    path.write_text('zip,price,"city, state",note\n' + ROWS, encoding="utf-8")
    return str(path)


@pytest.fixture
def run(relquery: Run) -> Run:
    return partial(relquery, "reorder")


@pytest.fixture
def figures(run: Run) -> Figures:
    def call(*arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(run(*arguments, "--json")[0])
        return document

    return call


def by_method(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["method"]: each for each in document["methods"]}


def test_methods_stand_side_by_side_with_what_they_reach(run: Run, shop: str) -> None:
    out, _ = run(shop)
    lines = [line.split("│") for line in out.splitlines()]
    methods = [cells[0].strip() for cells in lines if len(cells) == 4]
    assert methods[:5] == ["original", "fixed", "ggr", "tree", "ophr"]


def test_json_has_the_figures_of_the_python_call(figures: Figures, shop: str) -> None:
    document = figures(shop, "--method", "tree", "--weight", "tokens")
    report = reorder(read_text(Path(shop)), "tree", weight="tokens").report
    (tree,) = document["methods"]
    assert (tree["phc"], tree["hit_rate"]) == (report.phc, report.phr)
    assert [depth["rows"] for depth in tree["depths"]] == [depth.rows for depth in report.depths]
    assert tree["tokens"] is None
    assert tree["bill"] is None
    assert document["rows"] == 60
    assert document["columns"] == ["zip", "price", "city, state", "note"]
    assert document["dependencies"] == []


def test_methods_are_measured_with_the_same_dependencies(figures: Figures, shop: str) -> None:
    given = figures(shop, "--fd", "zip -> price")["dependencies"]
    assert given == [{"determinants": ["zip"], "dependents": ["price"]}]


def test_ophr_is_left_out_of_all_where_the_table_is_large(figures: Figures, run: Run) -> None:
    assert "1,536 rows" in figures("demo:movies")["left_out"]["ophr"]
    assert "ophr was skipped. The table has 1,536 rows" in run("demo:movies")[0]
    assert "Use method 'tree'" in run("demo:movies", "--method", "ophr", code=1)[1]


def test_a_bag_makes_passages_equal_in_whatever_column(figures: Figures, tmp_path: Path) -> None:
    path = tmp_path / "passages.parquet"
    pq.write_table(pa.table({"a": ["x" * 40, "y" * 40], "b": ["y" * 40, "x" * 40]}), path)
    plain, bagged = figures(str(path)), figures(str(path), "--bag", "a,b")
    assert by_method(plain)["tree"]["hit_rate"] < 0.1
    assert by_method(bagged)["tree"]["hit_rate"] == 0.5


def test_tokens_and_money_are_counted(figures: Figures, run: Run, tmp_path: Path) -> None:
    prefix = tmp_path / "system.txt"
    prefix.write_text("You judge film reviews. " * 200, encoding="utf-8")
    arguments = ("demo:movies", "--rows", "60", "--method", "fixed", "--tokenizer", "demo")
    priced = ("--weight", "claude-sonnet-5", "--prefix", f"@{prefix}", "--cache-tokens", "4096")
    (plain,) = figures(*arguments)["methods"]
    (fixed,) = figures(*arguments, *priced)["methods"]
    assert plain["bill"] is None
    assert plain["tokens"]["lru"] is None
    assert fixed["tokens"]["tokens"] > plain["tokens"]["tokens"] + 60 * 600
    assert fixed["tokens"]["lru"] <= fixed["tokens"]["unlimited"] <= fixed["tokens"]["tokens"]
    assert (fixed["tokens"]["blocks"], fixed["tokens"]["block_size"]) == (256, 16)
    assert 0 < fixed["bill"]["usd"] < fixed["bill"]["usd_without_cache"]
    out, _ = run(*arguments, *priced)
    assert "LRU: by a cache of 256 blocks of 16 tokens." in out
    assert "estimated from words" not in out
    assert "estimated from words" in run(*arguments[:-2], "--cache-tokens", "4096")[0]


def test_the_order_in_a_file_is_the_python_calls(run: Run, shop: str, tmp_path: Path) -> None:
    table = read_text(Path(shop))
    schedule = reorder(table, "tree")
    names = np.array(table.column_names)
    files = {ending: tmp_path / f"order.{ending}" for ending in ("parquet", "CSV", "json")}
    for target in files.values():
        run(shop, "--method", "tree", "-o", target)
    many_lines = pa_csv.ParseOptions(newlines_in_values=True)
    of_csv = pa_csv.read_csv(files["CSV"], parse_options=many_lines).to_pylist()
    for order in (
        pq.read_table(files["parquet"]).to_pylist(),
        [each | {"fields": json.loads(each["fields"])} for each in of_csv],
        json.loads(files["json"].read_text(encoding="utf-8")),
    ):
        assert [each["row"] for each in order] == schedule.rows.tolist()
        assert [each["fields"] for each in order] == names[schedule.fields].tolist()


def test_a_csv_is_read_as_written_or_its_line_is_named(run: Run, shop: str, tmp_path: Path) -> None:
    table = read_text(Path(shop), rows=2)
    assert table["zip"].to_pylist() == ["00", "01"]
    assert table["price"].to_pylist() == ["0.50", "1.50"]
    path = tmp_path / "late.csv"  # its quotes come late
    path.write_text("a,b\n" + "x,y\n" * 25_000 + '"p,q",z\n', encoding="utf-8")
    table = read_text(path)
    assert (table.num_rows, table["a"][-1].as_py()) == (25_001, "p,q")
    path = tmp_path / "ragged.csv"
    path.write_text("a,b\n1,2\n1,2,3\n", encoding="utf-8")
    _, err = run(str(path), code=1)
    assert err.startswith("Error: Table 'ragged.csv': Line 3 of ")
    assert "Expected Number of Columns: 2 Found: 3" in err


def test_columns_and_rows_take_a_part_of_the_table(figures: Figures, shop: str) -> None:
    document = figures(shop, "--columns", 'note,"city, state"', "--rows", "7")
    assert (document["columns"], document["rows"]) == (["note", "city, state"], 7)
    assert figures(shop, "--rows", "0")["rows"] == 0
    with pytest.raises(ConfigError, match="for DuckDB files"):
        read_text(Path(shop), table="x")
    with pytest.raises(UnknownColumnError, match=r"not in shop\.csv.*Did you mean 'zip'"):
        read_text(Path(shop), columns=["Zip"])


def test_a_table_of_a_duckdb_file_is_named_where_there_are_several(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE one AS SELECT 1.50 AS x")
    assert read_text(path).to_pylist() == [{"x": "1.50"}]
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE SCHEMA s; CREATE TABLE s.two AS SELECT 2 AS y")
    assert read_text(path, table="s.two").to_pylist() == [{"y": "2"}]
    with pytest.raises(TableError, match=r"2 tables. Name one with --table. Tables: one, s\.two"):
        read_text(path)
    with pytest.raises(TableError, match=r"Did you mean 's\.two'"):
        read_text(path, table="s.tow")


@given(st.lists(st.text(), min_size=1))
def test_names_in_double_quotes_are_read_as_they_are(names: list[str]) -> None:
    assert split_names(", ".join('"' + name.replace('"', '""') + '"' for name in names)) == names


def test_names_are_cut_at_commas_and_a_dependency_may_name_columns_with_arrows() -> None:
    assert split_names(" a, b c ,d") == ["a", "b c", "d"]
    assert split_names('5" disk,b') == ['5" disk', "b"]
    assert read_dependency("a, b -> c") == ["a, b -> c"]
    assert read_dependency('"a, b", c') == [["a, b", "c"]]
    there, back = Dependency(("a -> b", "c"), ("d",)), Dependency(("d",), ("a -> b", "c"))
    assert read_dependency('"a -> b", c -> d') == [there]
    assert read_dependency('"a -> b", c <-> "d"') == [there, back]


@pytest.mark.parametrize(("arguments", "message"), cases(__file__))
def test_what_is_wrong_is_one_line_with_a_remedy(
    run: Run, arguments: list[str], message: str
) -> None:
    out, err = run(*arguments, code=1)
    assert message in err
    assert err.startswith("Error: ")
    assert len(err.splitlines()) == 1
    assert out == ""


def test_output_to_a_folder_is_refused(run: Run, shop: str, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in run(shop, "-o", tmp_path / "folder.csv", code=1)[1]
    order, wrong = tmp_path / "order.csv", ("--fd", "zip -> nothing")
    run(shop, "-o", order, *wrong, code=1)
    assert not order.exists()
    order.write_text("mine", encoding="utf-8")
    run(shop, "-o", order, *wrong, code=1)
    assert order.read_text(encoding="utf-8") == "mine"


def test_orders_that_no_cache_holds_are_said_to_cost_the_same(run: Run, shop: str) -> None:
    out, _ = run(shop, "--weight", "gpt-4o-mini")
    assert "cheapest" not in out
    assert "(most tokens shared)" in out
    assert "No shared prefix reaches the 1,024 tokens that gpt-4o-mini caches at least" in out
    out, _ = run(shop, "--weight", "gpt-4o-mini", "--prefix", "word " * 2000)
    assert "(cheapest)" in out
    assert "No prefix" not in out
