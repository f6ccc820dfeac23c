"""A question about two texts is asked once for both orders, or follows from a label of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from relquery.backends.base import Backend
from relquery.connection import Connection, connect
from relquery.errors import QueryError
from relquery.prompt import Answer, Finish, Prompt, Sampling
from tests.sql.fakes import text_of

TEXTS = 40
COLUMNS = {"genre": 4, "language": 5, "product": 20, "person": 10}
ROWS = [{name: at * 7 % count for name, count in COLUMNS.items()} for at in range(TEXTS)]
LANGUAGES = ["English", "French", "German", "Greek", "Thai"]
GENRES = ["crime", "drama", "comedy", "horror"]


@dataclass
class Scripted(Backend):
    """Proposes what it is told to, and knows the labels of the texts and the answers to pairs."""

    proposal: dict[str, Any] | str = ""
    label: Callable[[int], str] = lambda row: ""
    yes: Callable[[int, int], bool] = lambda first, second: False
    asked: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return "scripted"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        for index, prompt in enumerate(prompts):
            text = "".join(map(text_of, prompt))
            self.asked.append(text)
            rows = [int(word[1:]) for word in text.split() if word[0] == "t" and word[1:].isdigit()]
            said = json.dumps(self.proposal)
            if sampling.labels == ("Yes", "No") and len(rows) < 2:
                said = "No"
            elif len(rows) == 1:
                said = self.label(rows[0])
            elif rows:
                said = "Yes" if self.yes(rows[0], rows[1]) else "No"
            yield index, Answer(said, Finish.STOP, prompt_tokens=len(text) // 4, output_tokens=1)


def proposal(
    yes: str, labels: Sequence[str], pairs: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    return {"yes": yes, "question": "Which one?", "labels": labels, "pairs": pairs}


@pytest.fixture
def backend() -> Scripted:
    return Scripted()


@pytest.fixture
def con(backend: Scripted) -> Iterator[Connection]:
    with connect(backend, ledger=None, progress=False, form="text") as connection:
        texts = [f"t{at}" for at in range(TEXTS)]
        connection.register("t", pa.table({"id": range(TEXTS), "text": texts}))
        yield connection


JOIN = (
    "SELECT a.id, b.id FROM t a JOIN t b ON a.id <> b.id AND AI_FILTER(PROMPT('{} {{0}} {{1}} .', "
    "a.text, b.text), pairs := {})"
)


def pairs(yes: Callable[[int, int], bool]) -> set[tuple[int, int]]:
    every = range(TEXTS)
    return {(a, b) for a in every for b in every if a != b and yes(a, b)}


def same(column: str) -> Callable[[int, int], bool]:
    return lambda a, b: ROWS[a][column] == ROWS[b][column]


@pytest.mark.parametrize("options", ["'labels'", "['symmetric', 'labels']"])
@pytest.mark.parametrize(
    ("question", "rule", "labels", "column"),
    [
        ("Are these of the same genre?", "same", GENRES, "genre"),
        ("Are these in different languages?", "different", LANGUAGES, "language"),
    ],
)
def test_what_follows_from_labels_takes_a_call_for_each_text_and_some_pairs(
    con: Connection,
    backend: Scripted,
    question: str,
    rule: str,
    labels: list[str],
    column: str,
    options: str,
) -> None:
    yes = same(column) if rule == "same" else lambda a, b: not same(column)(a, b)
    backend.proposal, backend.yes = proposal(rule, labels), yes
    backend.label = lambda row: labels[ROWS[row][column]]

    result = con.sql(JOIN.format(question, options))

    assert set(result.fetchall()) == pairs(yes)
    assert len(backend.asked) < 1 + TEXTS + 320
    stages = {stage.name: stage.calls for stage in result.report.stages}
    assert stages["filter 1 labels"] == 1 + TEXTS
    (note,) = result.report.notes
    assert f"pairs by labels (Which one? {', '.join(labels)}; Yes for {rule} ones)" in note
    assert "precision 0.9, recall 0.9 with confidence 0.95; 0 of " in note


@pytest.mark.parametrize(
    ("question", "labels", "column", "label"),
    [
        ("Are these about the same product?", ["toy", "tool"], "product", lambda row: row // 2 % 2),
        (
            "Are these by the same person?",
            ["formal", "casual", "rude"],
            "person",
            lambda row: row % 3,
        ),
    ],
)
def test_what_does_not_follow_is_asked_pair_by_pair(
    con: Connection,
    backend: Scripted,
    question: str,
    labels: list[str],
    column: str,
    label: Callable[[int], int],
) -> None:
    backend.proposal, backend.yes = proposal("same", labels), same(column)
    backend.label = lambda row: labels[label(ROWS[row][column])]

    result = con.sql(JOIN.format(question, "['symmetric', 'labels']"))

    assert set(result.fetchall()) == pairs(same(column))
    assert len(backend.asked) == 1 + TEXTS + TEXTS * (TEXTS - 1) // 2
    (note,) = result.report.notes
    assert "pairs one by one: the answer does not follow from labels" in note
    assert "drawn pairs are answered otherwise" in note


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (proposal("never", []), "the model proposes no labels"),
        (proposal("same", ["one"]), "the model proposes 1 labels"),
        (proposal("listed", GENRES, [["crime", "love"]]), "'love', which are no labels"),
        ("?", "the proposal cannot be read"),
    ],
)
def test_without_a_proposal_all_pairs_are_asked(
    con: Connection, backend: Scripted, given: Any, why: str
) -> None:
    backend.proposal, backend.yes = given, same("genre")

    result = con.sql(JOIN.format("Alike?", "['symmetric', 'labels']"))

    assert set(result.fetchall()) == pairs(same("genre"))
    assert len(backend.asked) == 1 + TEXTS * (TEXTS - 1) // 2
    assert why in result.report.notes[0]


def test_listed_labels_may_depend_on_the_place(con: Connection, backend: Scripted) -> None:
    yes = lambda a, b: ROWS[a]["genre"] == 0 and ROWS[b]["genre"] in (1, 2)  # noqa: E731
    listed = [["crime", "drama"], ["crime", "comedy"]]
    backend.proposal, backend.yes = proposal("listed", GENRES, listed), yes
    backend.label = lambda row: GENRES[ROWS[row]["genre"]]

    result = con.sql(JOIN.format("Is a crime before these?", "'labels', recall := 0.8"))

    assert set(result.fetchall()) == pairs(yes)
    assert "recall 0.8" in result.report.notes[0]
    assert len(backend.asked) < TEXTS * (TEXTS - 1) // 2


def test_a_symmetric_question_is_asked_once_for_both_orders(
    con: Connection, backend: Scripted
) -> None:
    backend.yes = same("genre")
    query = JOIN.format("Alike?", "'symmetric'")

    hint = "add pairs := 'symmetric' to ask once"
    assert hint in str(con.explain(query.replace(", pairs := 'symmetric'", "")))
    explained = str(con.explain(query))
    assert f"{TEXTS * (TEXTS - 1) // 2:,}" in explained
    assert hint not in explained
    assert set(con.sql(query).fetchall()) == pairs(same("genre"))
    assert len(backend.asked) == TEXTS * (TEXTS - 1) // 2

    backend.asked.clear()
    found = con.sql(f"{query} LIMIT 6").fetchall()
    assert set(found) < pairs(same("genre"))
    assert {(b, a) for a, b in found} == set(found)


def test_the_two_texts_keep_their_names_and_their_nulls(con: Connection, backend: Scripted) -> None:
    con.sql(
        "SELECT AI_FILTER('Alike?', x, y, pairs := 'symmetric') FROM "
        "(VALUES ('t2', 't1'), ('t1', 't2'), ('t1', NULL), (NULL, 't1')) AS v(x, y)"
    ).fetchall()

    assert [text.split("\n\n")[1] for text in sorted(backend.asked)] == [
        "y: t1\nx: null",
        "y: t2\nx: t1",
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("AI_FILTER('Late?', text, pairs := 'symmetric')", "needs two fields"),
        ("AI_FILTER('Late?', text, id, pairs := 'both')", "'both' is not known"),
        ("AI_FILTER('Late?', text, id, pairs := 'labels', classify := true)", "sets classify and"),
        (
            "AI_FILTER('Late?', text, id, pairs := 'labels', accuracy := 0.9)",
            "in place of accuracy",
        ),
        ("AI_SCORE('Late?', text, id, pairs := 'labels')", "'labels' is not known"),
        ("AI_SENTIMENT(text, pairs := 'symmetric')", "'pairs' is not known"),
    ],
)
def test_what_pairs_cannot_be(con: Connection, call: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        con.sql(f"SELECT {call} FROM t")
