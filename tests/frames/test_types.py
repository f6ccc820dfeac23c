"""Columns that no verb has changed come back as they were, with values and types of any kind."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.connection import connect
from relquery.errors import ConfigError, TableError
from relquery.frames.frame import Frame, frame
from tests.frames import model
from tests.frames.near import install
from tests.sql.fakes import FakeBackend

DAY = datetime.datetime(2024, 2, 29, 12, 30, 1, 500)
STEP = datetime.timedelta(days=3, seconds=7)
ROWS = 6
TEXTS = ["alien", "aliens", None, "dune", "", "it's ☂"]


def _column(values: Callable[[int], Any], at: int) -> list[Any]:
    """Values with a missing one."""
    return [None if row == at else values(row) for row in range(ROWS)]


array: Any = pd.array  # whose annotations know fewer types
PANDAS: dict[str, Any] = {
    "period": array(_column(lambda at: pd.Period("2024-01", "M") + at, 1), dtype="period[M]"),
    "interval": pd.array([pd.Interval(at, at + 1) for at in range(ROWS)]),
    "category": pd.Categorical(["b", "a", None, "b", "a", "b"], ["b", "a", "c"], ordered=True),
    "codes": pd.Categorical([3, 1, 3, 1, 3, None]),
    "Int8": pd.array(_column(int, 2), dtype="Int8"),
    "UInt64": pd.array(_column(lambda at: 2**63 + at, 0), dtype="UInt64"),
    "Float32": pd.array(_column(float, 2), dtype="Float32"),
    "boolean": pd.array(_column(lambda at: at > 2, 2), dtype="boolean"),
    "string": pd.array(_column(str, 2), dtype="string"),
    "object": pd.Series(["a", None, "b", "c", "d", "e"], dtype=object).array,
    "lists": pd.Series([[1], [], None, [2, 3], [4], [5]], dtype=object).array,
    "int16": pd.Series(range(ROWS), dtype="int16").array,
    "float16": pd.Series(range(ROWS), dtype="float16").array,
    "bool": pd.Series([True, False] * 3).array,
    "timedelta": pd.to_timedelta([f"{at}h 3ns" for at in range(ROWS)]).array,
    "seconds": pd.to_timedelta(range(ROWS), "s").as_unit("s").array,
    "datetime": pd.date_range("2024-01-01", periods=ROWS, unit="s").array,
    "tokyo": pd.date_range("2024-01-01", periods=ROWS, tz="Asia/Tokyo", unit="ns").array,
    "offset": pd.date_range("2024-01-01", periods=ROWS, tz="+03:30").array,
    "sparse": pd.arrays.SparseArray([0, 0, 1, 0, 0, 2]),
    "arrow": array(_column(decimal.Decimal, 3), dtype=pd.ArrowDtype(pa.decimal128(9, 2))),
    "complex": pd.Series([complex(at, 1) for at in range(ROWS)]).array,
}
POLARS: dict[str, pl.DataType] = {
    "duration": pl.Duration("ms"),
    "nanos": pl.Duration("ns"),
    "enum": pl.Enum(["0", "1", "2", "3", "4", "5", "6"]),
    "categorical": pl.Categorical(),
    "tokyo": pl.Datetime("us", "Asia/Tokyo"),
    "datetime": pl.Datetime("ns"),
    "date": pl.Date(),
    "time": pl.Time(),
    "int8": pl.Int8(),
    "uint64": pl.UInt64(),
    "float32": pl.Float32(),
    "decimal": pl.Decimal(12, 3),
    "string": pl.String(),
    "binary": pl.Binary(),
    "list": pl.List(pl.Int16()),
    "array": pl.Array(pl.Float32(), 2),
    "struct": pl.Struct({"a": pl.Int8(), "b": pl.Categorical()}),
    "boolean": pl.Boolean(),
}
ARROW: dict[str, pa.DataType] = {
    "duration": pa.duration("s"),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "large": pa.large_string(),
    "view": pa.string_view(),
    "tokyo": pa.timestamp("ns", "Asia/Tokyo"),
    "timestamp": pa.timestamp("s"),
    "time32": pa.time32("s"),
    "date64": pa.date64(),
    "uint16": pa.uint16(),
    "float32": pa.float32(),
    "decimal": pa.decimal128(20, 5),
    "fixed": pa.binary(2),
    "list": pa.large_list(pa.int8()),
    "map": pa.map_(pa.string(), pa.int8()),
    "struct": pa.struct([("a", pa.int8()), ("b", pa.duration("us"))]),
    "bool": pa.bool_(),
}


def _value(kind: str, at: int) -> Any:
    """A value of a type of polars or Arrow, by its name."""
    known: dict[str, Any] = {
        "duration": STEP * at, "nanos": STEP * at, "tokyo": DAY + STEP * at,
        "datetime": DAY + STEP * at, "timestamp": (DAY + STEP * at).replace(microsecond=0),
        "date": (DAY + STEP * at).date(), "date64": (DAY + STEP * at).date(),
        "time": datetime.time(at), "time32": datetime.time(at),
        "decimal": decimal.Decimal(at) / 4, "binary": bytes([at]), "fixed": bytes([at, 7]),
        "list": [at, 1], "array": [at, 0.5], "map": {"k": at}, "boolean": at > 2, "bool": at > 2,
    }  # fmt: skip
    texts = ("enum", "categorical", "string", "dictionary", "large", "view")
    return known.get(kind, str(at) if kind in texts else at)


def _polars(kind: str) -> pl.Series:
    if kind == "struct":
        return pl.Series(kind, [{"a": at, "b": str(at % 2)} for at in range(ROWS)], POLARS[kind])
    return pl.Series(kind, _column(lambda at: _value(kind, at), 2), POLARS[kind])


def _arrow(kind: str) -> pa.Array:
    if kind == "struct":
        return pa.array([{"a": at, "b": STEP * at} for at in range(ROWS)], ARROW[kind])
    return pa.array(_column(lambda at: _value(kind, at), 2), ARROW[kind])


def made(library: str, kinds: list[str]) -> Any:
    """A table of a library with a text, a number and columns of some types."""
    plain = {"text": TEXTS, "n": list(range(ROWS))}
    if library == "pandas":
        return pd.DataFrame({**plain, **{kind: PANDAS[kind] for kind in kinds}}, [*"fedcba"])
    if library == "arrow":
        return pa.table({**plain, **{kind: _arrow(kind) for kind in kinds}})
    found = pl.DataFrame(plain).with_columns(_polars(kind) for kind in kinds)
    return found.lazy() if library == "lazy" else found


KINDS = {"pandas": [*PANDAS], "polars": [*POLARS], "lazy": [*POLARS], "arrow": [*ARROW]}
VERBS: dict[str, Callable[[Frame], Frame]] = {
    "sem_filter": lambda lazy: lazy.sem_filter("{text} is good"),
    "asked": lambda lazy: lazy.sem_filter("{text} is good", output="asked"),
    "sem_map": lambda lazy: lazy.sem_map("Say {text}", output="said"),
    "sem_extract": lambda lazy: lazy.sem_extract("text", "tag VARCHAR, stars INTEGER"),
    "sem_classify": lambda lazy: lazy.sem_classify("{text}?", ["x", "y"], "kind"),
    "sem_score": lambda lazy: lazy.sem_score("{text}?"),
    "sem_topk": lambda lazy: lazy.sem_topk("best {text}", 4),
    "sem_topk_by": lambda lazy: lazy.sem_topk("best {text}", 2, by="text"),
    "sem_search": lambda lazy: lazy.sem_search("text", "alien", 3, score="near"),
    "sem_dedup": lambda lazy: lazy.sem_dedup("text", 0.8),
    "semi": lambda lazy: lazy.sem_join([{"v": "ale"}], "{text} is {v}", "semi"),
    "anti": lambda lazy: lazy.sem_join([{"x": "ale"}], "{text} is {x}", "anti"),
    "inner": lambda lazy: lazy.sem_join([{"w": "ale"}, {"w": "dune"}], "{text} is {w}"),
    "sem_sim_join": lambda lazy: lazy.sem_sim_join([{"u": "ale"}], "text", "u", 1),
    "filter": lambda lazy: lazy.filter("n > 1"),
    "with_columns": lambda lazy: lazy.with_columns(row_number="n * 2"),
    "sort": lambda lazy: lazy.sort("text", descending=True),
    "limit": lambda lazy: lazy.limit(4, offset=1),
}  # fmt: skip
ONCE = ("asked", "sem_map", "sem_extract", "sem_classify", "sem_score", "sem_search", "inner",
        "sem_sim_join")  # fmt: skip


@pytest.fixture(scope="module")
def lend() -> Iterator[Callable[[object], Frame]]:
    """Makes frames of one connection."""
    with connect(FakeBackend(model.answer)) as connection:
        install(connection)
        yield lambda data: frame(data, connection)


def check(
    lend: Callable[[object], Frame], library: str, kinds: list[str], verbs: list[str]
) -> None:
    """Run verbs, and compare all columns but theirs with those of the data, row by row."""
    data = made(library, kinds)
    lazy = lend(data)
    for verb in verbs:
        lazy = VERBS[verb](lazy)
    found = lazy.collect()
    if library == "lazy":
        data = data.collect()
    rows = [int(at) for at in (found["n"].to_pylist() if library == "arrow" else found["n"])]
    for kind in ("text", "n", *kinds):
        if library == "pandas":
            expected = data[kind].iloc[rows]
            pd.testing.assert_series_equal(found[kind], expected, check_index=False)
            if lazy.relation.keeps_rows:
                assert list(found.index) == list(expected.index)
        elif library == "arrow":
            assert found.column(kind).type == data.column(kind).type
            values = data.column(kind).to_pylist()
            assert found.column(kind).to_pylist() == [values[at] for at in rows]
        else:
            assert found[kind].dtype == data[kind].dtype
            assert found[kind].equals(data[kind].gather(rows), null_equal=True)


@pytest.mark.parametrize("library", KINDS)
def test_every_type_comes_back_through_every_verb(
    lend: Callable[[object], Frame], library: str
) -> None:
    """Some types in each verb; all of them in a filter, which every statement has."""
    kinds = KINDS[library]
    check(lend, library, kinds, ["filter"])
    for at, verb in enumerate(VERBS):
        check(lend, library, [kinds[at % len(kinds)], kinds[(at * 7 + 1) % len(kinds)]], [verb])


@pytest.mark.long
@given(st.data())
def test_types_come_back_through_random_pipelines(
    lend: Callable[[object], Frame], data: st.DataObject
) -> None:
    library = data.draw(st.sampled_from([*KINDS]))
    kinds = data.draw(st.lists(st.sampled_from(KINDS[library]), max_size=4, unique=True))
    verbs = data.draw(st.lists(st.sampled_from([*VERBS]), max_size=4))
    seen: set[str] = set()
    verbs = [one for one in verbs if one not in ONCE or not (one in seen or seen.add(one))]  # type: ignore[func-returns-value]
    check(lend, library, kinds, verbs)


def test_keys_of_groups_and_columns_of_both_sides_keep_their_types(
    lend: Callable[[object], Frame],
) -> None:
    data = made("pandas", ["period", "category"])
    groups = lend(data).sem_agg("Sum {text} up", by=["period", "category"]).collect()
    assert [*groups.dtypes][:2] == [data["period"].dtype, data["category"].dtype]
    other = data[["period"]].assign(w=["ale", "x", "y", "z", "v", "u"])
    pairs = lend(data).sem_join(other, "{text} is {w}", "left").collect()
    assert pairs["period:right"].dtype == pairs["period:left"].dtype == data["period"].dtype
    polars = pl.DataFrame({"text": ["a"]}).with_columns(_polars("enum").head(1))
    pairs = lend(polars).sem_join(polars.rename({"text": "w"}), "{text} is {w}", "left").collect()
    assert pairs.schema["enum:right"] == POLARS["enum"]


def test_a_period_is_read_as_text(lend: Callable[[object], Frame]) -> None:
    lazy = lend(made("pandas", ["period"])).filter("period = '2024-01'")
    assert lazy.collect()["n"].tolist() == [0]


def test_a_column_of_several_types_is_named(lend: Callable[[object], Frame]) -> None:
    with pytest.raises(TableError, match=r"Column 'a' has values of int, str.*df\['a'\] = df"):
        lend(pd.DataFrame({"ok": [1, 2], "a": [1, "x"]}))


def test_a_new_column_never_replaces_one_silently(lend: Callable[[object], Frame]) -> None:
    lazy = lend(made("pandas", []))
    uses: list[Callable[[str], Frame]] = [
        lambda name: lazy.sem_map("Say {text}", output=name),
        lambda name: lazy.sem_map("Say {text}", output=f"{name} INTEGER, other"),
        lambda name: lazy.sem_filter("{text} is good", output=name),
        lambda name: lazy.sem_classify("{text}?", ["x"], name),
        lambda name: lazy.sem_score("{text}?", name),
        lambda name: lazy.sem_extract("text", {name: None}),
    ]
    for use in uses:
        for name in ("n", "N"):
            with pytest.raises(
                ConfigError, match=r"would replace the column 'n'.*f.select\('text'"
            ):
                use(name)
    assert lazy.with_columns(n="n + 1").collect()["n"].tolist() == [1, 2, 3, 4, 5, 6]
