"""What is found holds, is of use, and is no accident; what was planted is found."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from relquery._native import shuffle_within, violations, violations_of_each
from relquery.arrays import Int32s, Int64s
from relquery.errors import ConfigError, UnknownColumnError
from relquery.reordering.dependencies import Dependency
from relquery.reordering.discover import (
    CERTAINTY,
    CHANCE,
    LEAST_REPEATS,
    Partition,
    discover,
    refine,
    whole,
)
from relquery.reordering.encode import Columns, encode
from tests.data import data_path
from tests.pace import within
from tests.reordering.dependency_reference import Data, g3, related, rows_to_remove

TOLERANCES = st.sampled_from([0.0, 0.01, 0.05])
Numbers = npt.NDArray[np.int64]
Texts = Sequence[str | None]


def written(found: tuple[Dependency, ...]) -> set[str]:
    """One dependent each: {"a -> b", "a -> c"}."""
    return {
        f"{', '.join(dependency.determinants)} -> {dependent}"
        for dependency in found
        for dependent in dependency.dependents
    }


def table_of(**columns: Numbers) -> Columns:
    return encode(pa.table(columns))


@given(related(), TOLERANCES)
def test_the_error_is_the_share_of_rows_to_remove_and_no_part_of_a_composite_is_enough(
    data: Data, tolerance: float
) -> None:
    for dependency in discover(encode(data), tolerance=tolerance):
        assert dependency.error == g3(data, dependency.determinants, dependency.dependents)
        assert dependency.error <= tolerance
        if len(dependency.determinants) == 2:
            for one, other in (dependency.determinants, dependency.determinants[::-1]):
                for dependent in (*dependency.dependents, other):
                    assert g3(data, [one], [dependent]) > tolerance


@settings(derandomize=True)  # shuffles are a matter of luck
@given(related(), TOLERANCES)
def test_what_holds_and_what_chance_would_break_by_far_is_found(
    data: Data, tolerance: float
) -> None:
    found = written(discover(encode(data), tolerance=tolerance))
    rows = len(next(iter(data.values())))
    for one, other in combinations(data, 2):
        for a, b in ((one, other), (other, one)):
            lost = rows_to_remove(data[a], data[b])
            doubt = math.log(len(data) ** 2) + CERTAINTY
            least = max(lost + doubt + math.sqrt(2 * lost * doubt), CHANCE * lost)
            repeat = min(rows - len(set(data[a])), rows - len(set(data[b])))
            if (
                lost <= tolerance * rows
                and repeat >= LEAST_REPEATS * rows
                and least_by_chance(data[a], data[b]) > least + 1
            ):
                assert f"{a} -> {b}" in found


def least_by_chance(determinants: Texts, dependents: Texts) -> int:
    """The fewest rows to remove in twenty shuffles."""
    random = Random(0)
    return min(
        rows_to_remove(determinants, random.sample(dependents, len(dependents))) for _ in range(20)
    )


@settings(derandomize=True)  # shuffles are a matter of luck
@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(1, 12), TOLERANCES)
def test_nothing_is_found_among_independent_columns(
    seed: int, rows: int, width: int, tolerance: float
) -> None:
    rng = np.random.default_rng(seed)
    distinct = rng.integers(1, rows + 1, width)
    columns = {f"c{i}": rng.integers(0, most, rows) for i, most in enumerate(distinct)}
    assert discover(table_of(**columns), tolerance=tolerance) == ()


def planted() -> dict[str, Numbers]:
    """10,000 x 57: a key with what follows from it in each way, and independent columns."""
    rng = np.random.default_rng(0)
    rows = 10_000
    key, shelf, floor = (
        rng.integers(0, 500, rows),
        rng.integers(0, 40, rows),
        rng.integers(0, 9, rows),
    )
    noise = rng.random(rows)
    columns = {
        "key": key,
        "name": rng.permutation(500)[key],
        "kind": rng.integers(0, 20, 500)[key],
        "nearly": np.where(noise < 0.005, rng.integers(0, 90, rows), rng.integers(0, 90, 500)[key]),
        "hardly": np.where(noise < 0.1, rng.integers(0, 90, rows), rng.integers(0, 90, 500)[key]),
        "shelf": shelf,
        "floor": floor,
        "place": rng.integers(0, 60, (40, 9))[shelf, floor],
        "constant": np.zeros(rows, np.int64),
        "rarely": (rng.random(rows) < 0.005).astype(np.int64),
        "unique": np.arange(rows),
        "text": rng.integers(0, 10**6, rows),
    }
    for i in range(57 - len(columns)):
        columns[f"free {i}"] = rng.integers(0, 2 + i**2, rows)
    return columns


@pytest.fixture(scope="module")
def columns() -> Columns:
    return table_of(**planted())


def test_planted_dependencies_of_each_kind_are_found_and_no_others(columns: Columns) -> None:
    found = discover(columns)
    assert written(found) == {
        "key -> name",
        "key -> kind",
        "key -> nearly",
        "name -> key",
        "name -> kind",
        "name -> nearly",
        "shelf, floor -> place",
    }
    errors = {str(dependency): dependency.error for dependency in found}
    assert errors["key -> name, kind"] == 0
    assert 0.003 < errors["key -> nearly"] < 0.006
    assert discover(columns) == found


def test_a_wider_tolerance_finds_what_holds_less(columns: Columns) -> None:
    assert "key -> hardly" in written(discover(columns, tolerance=0.12))
    assert "key -> nearly" not in written(discover(columns, tolerance=0.0))


def test_columns_can_be_skipped(columns: Columns) -> None:
    found = discover(columns, skip=["name", "floor"])
    assert written(found) == {"key -> kind", "key -> nearly"}


def test_null_and_empty_text_are_values_like_any_other() -> None:
    random = Random(0)
    keys = [random.choice([None, "", "x", "y"]) for _ in range(200)]
    names = {None: "", "": None, "x": "one", "y": "two"}
    found = discover(encode({"key": keys, "name": [names[key] for key in keys]}))
    assert written(found) == {"key -> name", "name -> key"}
    merged = [names[key] or None for key in keys]
    assert written(discover(encode({"key": keys, "name": merged}))) == {"key -> name"}


def test_of_columns_with_one_name_the_first_is_meant() -> None:
    rng = np.random.default_rng(0)
    free, key = rng.integers(0, 9, 500), rng.integers(0, 9, 500)
    columns = encode(pa.table([free, key, key], names=["x", "key", "x"]))
    assert discover(columns) == ()
    columns = encode(pa.table([key, key, free], names=["x", "key", "x"]))
    assert written(discover(columns)) == {"x -> key", "key -> x"}


def test_a_composite_names_the_first_of_columns_that_determine_one_another() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 12, 3000), rng.integers(0, 12, 3000)
    c = rng.integers(0, 30, (12, 12))[a, b]
    found = written(discover(table_of(a=a, same=a + 5, b=b, c=c)))
    assert found == {"a -> same", "same -> a", "a, b -> c"}


def test_what_one_column_nearly_determines_is_not_said_of_two() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 110, 10_000), rng.integers(0, 20, 10_000)
    c = np.where(a == 0, 99, rng.permutation(20)[b])
    assert written(discover(table_of(a=a, b=b, c=c))) == {"b -> c", "c -> b"}
    assert written(discover(table_of(b=b, a=a, c=c))) == {"b -> c", "c -> b"}


def test_a_column_that_another_one_nearly_determines_makes_no_composite_with_it() -> None:
    rng = np.random.default_rng(0)
    key, noise = rng.integers(0, 50, 10_000), rng.random(10_000)
    b = np.where(noise < 0.009, 99, key % 20)
    c = np.where(noise < 0.009, 99, np.where(noise > 0.998, 98, key % 17))
    assert "key, b -> c" not in written(discover(table_of(key=key, b=b, c=c)))
    assert "b, key -> c" not in written(discover(table_of(b=b, key=key, c=c)))


def test_what_hardly_repeats_determines_nothing() -> None:
    rng = np.random.default_rng(0)
    once = rng.integers(0, 9, (2900, 3))
    text = np.arange(3000) % 2900  # a hundred rows are there twice
    columns = {name: once[text, i] for i, name in enumerate("abc")}
    assert discover(table_of(text=text, **columns)) == ()
    a, b = rng.integers(0, 250, 3000), rng.integers(0, 250, 3000)
    c = rng.integers(0, 9, (250, 250))[a, b]
    assert discover(table_of(a=a, b=b, c=c)) == ()


def test_a_table_that_shows_nothing_gives_nothing() -> None:
    distinct = list(map(str, range(300)))
    for a, b in (
        ([], []),
        (["x"], ["y"]),
        (["x", "x", None], ["y", "y", "z"]),
        ([None] * 300, [None] * 300),
        (["same"] * 300, ["same"] * 300),
        (distinct, distinct),
        (["x"] * 299 + ["y"], ["y"] + ["x"] * 299),
    ):
        assert discover(encode({"a": a, "b": b})) == ()
    assert discover(encode({})) == discover(encode({"a": []})) == ()


def test_settings_out_of_range_are_refused() -> None:
    columns = encode({"title": ["a"]})
    with pytest.raises(ConfigError, match="tolerance is 1"):
        discover(columns, tolerance=1)
    with pytest.raises(ConfigError, match="tolerance is nan"):
        discover(columns, tolerance=math.nan)
    with pytest.raises(UnknownColumnError, match="Did you mean 'title'"):
        discover(columns, skip=["titel"])


@pytest.mark.long
def test_57_columns_take_seconds(columns: Columns) -> None:
    with within(5):
        discover(columns)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["free", "equal"])
def test_2000_columns_take_seconds(kind: str) -> None:
    rng = np.random.default_rng(0)
    key = rng.integers(0, 30, 600)
    columns = table_of(
        **{
            f"c{i}": key if kind == "equal" else rng.integers(0, 2 + i % 90, 600)
            for i in range(2000)
        }
    )
    with within(20):
        discover(columns)


def test_on_wide_tables_the_columns_with_the_most_to_gain_take_part() -> None:
    rng = np.random.default_rng(0)
    key = rng.integers(0, 30, 200)
    data = {f"c{i}": rng.integers(0, 5, 200).astype(str).tolist() for i in range(1998)}
    data["long"] = [f"a rather long text {k}" for k in key]
    data["longer"] = [f"an even longer text than that {k}" for k in key]
    assert written(discover(encode(data))) == {"long -> longer", "longer -> long"}


REAL = {
    "beer/beer.csv": {
        "beer/name -> beer/beerId",
        "beer/beerId -> beer/name",
        "beer/beerId -> beer/style",
    },
    "movies/movies.parquet": {
        f"{a} -> {b}"
        for a in ("movieinfo", "movietitle", "rottentomatoeslink")
        for b in ("movieinfo", "movietitle", "rottentomatoeslink", "genres")
        if a != b
    },
    "bird/posts_comments.parquet": {"Body -> PostId", "PostId -> Body", "PostId -> PostDate"},
    "contributions/contributions.csv": {"ZIP_CODE -> CITY", "CMTE_ID, RPT_TP -> TRAN_ID"},
    "pdmx/sample100_labelled.csv": {"license -> licenseurl", "licenseurl -> license"},
    "squad/squad_rag5.parquet": set(),
}
NEAR_KEYS = {"Text", "CAND_ID", "reviewcontent", "question", "orig_row", "path", "title"}


@cache
def real(name: str) -> Columns:
    path = data_path(name)
    return encode(csv.read_csv(path) if path.suffix == ".csv" else parquet.read_table(path))


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize("name", REAL)
def test_real_tables_show_their_dependencies_and_none_of_a_near_key_soon(name: str) -> None:
    found = discover(real(name))
    assert written(found) >= REAL[name]
    assert NEAR_KEYS.isdisjoint(used for dependency in found for used in dependency.names)
    assert len(found) < 20
    with within(0.2):
        discover(real(name))


@pytest.mark.data
@pytest.mark.long
def test_the_error_on_a_real_table_is_counted_on_all_its_rows() -> None:
    columns = real("bird/posts_comments.parquet")
    body, post = (columns.codes[:, columns.names.index(name)] for name in ("Body", "PostId"))
    lost = rows_to_remove(body.tolist(), post.tolist())
    assert Dependency(("Body",), ("PostId",), lost / len(body)) in discover(columns)


ROWS = st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=25)
VALUES = 5


def codes_of(rows: list[tuple[int, ...]]) -> Int32s:
    return np.ascontiguousarray(np.array(rows, dtype=np.int32).reshape(-1, 3).T)


def scratch() -> Int64s:
    return np.zeros(VALUES, np.int64)


def by_first_two(codes: Int32s) -> Partition:
    one = refine(whole(codes.shape[1]), codes[0], scratch())
    return refine(one, codes[1], scratch())


def groups_of(partition: Partition) -> list[list[int]]:
    return [group.tolist() for group in np.split(partition.rows, partition.starts[1:-1])]


@given(ROWS)
def test_refined_groups_are_the_rows_that_agree_in_both_columns(
    rows: list[tuple[int, ...]],
) -> None:
    together = defaultdict(list)
    for row, (a, b, _) in enumerate(rows):
        together[a, b].append(row)
    expected = [group for group in together.values() if len(group) > 1]
    partition = by_first_two(codes_of(rows))
    assert sorted(group for group in groups_of(partition) if group) == sorted(expected)
    assert partition.repeats == sum(len(group) - 1 for group in expected)


@given(ROWS, st.integers(0, 25))
def test_violations_are_the_rows_to_remove_up_to_the_limit(
    rows: list[tuple[int, ...]], limit: int
) -> None:
    codes, counts = codes_of(rows), scratch()
    expected = rows_to_remove([row[:2] for row in rows], [row[2] for row in rows])
    lost = violations(*by_first_two(codes), codes[2], counts, limit)
    assert lost == min(expected, limit + 1)
    assert not counts.any()


@given(ROWS, st.integers(0, 25), st.lists(st.booleans(), min_size=3, max_size=3))
def test_columns_counted_at_once_are_counted_as_each_alone(
    rows: list[tuple[int, ...]], limit: int, asked: list[bool]
) -> None:
    codes = codes_of(rows)
    partition = by_first_two(codes)
    distinct = np.array([len(set(column)) for column in codes.tolist()], dtype=np.int64)
    lost = violations_of_each(*partition, np.array(asked), codes, scratch(), limit, distinct)
    assert lost.tolist() == [
        violations(*partition, column, scratch(), limit) if wanted else limit + 1
        for column, wanted in zip(codes, asked, strict=True)
    ]


@given(ROWS, st.integers(0, 9))
def test_a_shuffle_keeps_each_group_and_every_row_outside_the_groups(
    rows: list[tuple[int, ...]], seed: int
) -> None:
    partition = by_first_two(codes_of(rows))
    draws = np.random.default_rng(seed).integers(0, 2**31, len(rows))
    source = shuffle_within(*partition, draws, len(rows))
    alone = sorted(set(range(len(rows))) - set(partition.rows.tolist()))
    assert source[alone].tolist() == alone
    for group in groups_of(partition):
        assert sorted(source[group]) == sorted(group)


def test_a_shuffle_gives_each_order_of_a_pair_as_often() -> None:
    pairs = np.repeat(np.arange(1000, dtype=np.int32), 2)
    partition = refine(whole(2000), pairs, np.zeros(1000, np.int64))
    draws = np.random.default_rng(0).integers(0, 2**31, 2000)
    stayed = np.count_nonzero(shuffle_within(*partition, draws, 2000) == np.arange(2000))
    assert 900 < stayed < 1100
