"""docs/frames.md tells the arguments and defaults that verbs have, and what becomes of NULL."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pandas as pd

from relquery.connection import Connection
from relquery.frames.frame import Frame, frame
from tests.sql.fakes import FakeBackend

PAGE = (Path(__file__).parents[2] / "docs" / "frames.md").read_text(encoding="utf-8")
TABLE = PAGE[PAGE.index("| verb | arguments and their defaults") :].split("\n\n")[0]
SAID = {
    verb: re.findall(r"`(\*?\w+)(?:=([^`]*))?`", arguments)
    for verbs, arguments in re.findall(r"^\| (`.*?`) \| (`.*?) \|", TABLE, re.MULTILINE)
    for verb in re.findall(r"\w+", verbs)
}
ROWS = pd.DataFrame({"text": ["a", None, "b"], "n": pd.array([1, None, None], dtype="Int64")})


def test_every_verb_that_asks_or_compares_is_in_the_table() -> None:
    assert {name for name in dir(Frame) if name.startswith("sem_")} <= set(SAID)


def test_arguments_and_defaults_are_as_the_table_says() -> None:
    for verb, said in SAID.items():
        told = {
            ("*" if one.kind is one.VAR_POSITIONAL else "") + one.name: ""
            if one.default is one.empty
            else repr(one.default).replace("'", '"')
            for one in inspect.signature(getattr(Frame, verb)).parameters.values()
            if one.name != "self" and one.kind is not one.VAR_KEYWORD
        }
        assert dict(said) == told, verb


def test_rows_with_null_alone_are_not_asked_about(con: Connection, backend: FakeBackend) -> None:
    rows = frame(ROWS, con)
    for lazy in (
        rows.sem_filter("{text}?"),
        rows.sem_map("Say {text}"),
        rows.sem_extract("text", "tag VARCHAR, stars INTEGER"),
        rows.sem_classify("Kind of {text}", ["x", "y"]),
        rows.sem_score("{text}?"),
        rows.sem_topk("{text}", 1),
    ):
        backend.asked.clear()
        lazy.collect()
        assert None not in [request.fields["text"] for request in backend.asked]
    backend.asked.clear()
    rows.sem_join([{"x": "c"}], "{text} is {x}").collect()
    assert None in [request.fields["text"] for request in backend.asked]


def test_null_in_keys_is_the_last_group(con: Connection) -> None:
    rows = frame(ROWS, con)
    assert rows.sem_agg("Sum {text} up", by="n").df()["n"].isna().tolist() == [False, True]
    assert rows.sem_topk("{text}", 1, by="n").df()["n"].isna().tolist() == [False, True]


def test_rows_without_a_text_are_near_nothing(con: Connection) -> None:
    rows = frame(ROWS, con)
    assert None not in rows.sem_sim_join([{"x": "a"}], "text", "x", 1).pl()["text"].to_list()
    assert None not in rows.sem_search("text", "a", 3).pl()["text"].to_list()
    assert None in rows.sem_dedup("text", 1.0).pl()["text"].to_list()
    near = rows.sem_join(ROWS, "{text:left} is {text:right}", "anti", blocking=0.5, recall_sample=0)
    assert None in near.pl()["text"].to_list()


def test_names_of_pandas_columns_become_text(con: Connection) -> None:
    assert list(frame(pd.DataFrame([[1, 2]]), con).collect().columns) == ["0", "1"]
