"""Queries of types T1 to T4 as in paper 000: fields from Appendices A and B, prompts from C,
answer lengths from Table 1. Those over tables that the paper lacks are like its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.queries.prompts import number

FREE = ("An answer in free text.",)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a query. fields: in SQL. tokens: of each answer. texts: one of them is the answer
    to a row, and which one depends on the row's fields alone, in any order. function: in SQL."""

    prompt: str
    fields: str
    tokens: int
    texts: tuple[str, ...] = FREE
    function: str = "LLM"

    def sql(self, shorter: int) -> str:
        """The call, with answers that have one token in `shorter`, but at least 2."""
        prompt = self.prompt.replace("'", "''")
        tokens = max(2, self.tokens // shorter)
        return f"{self.function}('{prompt}', {self.fields}, max_tokens := {tokens})"

    def answer(self, fields: Mapping[str, Any]) -> str:
        """The text of the answer to a row."""
        return self.texts[int(number(self.prompt, fields) * len(self.texts))]


@dataclass(frozen=True, slots=True)
class Query:
    """A query of one of the paper's types. template: SQL with a place for each call.
    ours: the paper has no such query over this table."""

    type: str
    table: str
    template: str
    calls: tuple[Call, ...]
    ours: bool = False

    @property
    def name(self) -> str:
        """For figures."""
        return f"{self.type.lower()}_{self.table}"

    def sql(self, shorter: int = 1) -> str:
        """The query. shorter: see Call."""
        return self.template.format(*(call.sql(shorter) for call in self.calls))

    def answer(self, prompt: str, fields: Mapping[str, Any]) -> str:
        """The text of the answer to a row, by the prompt of the call. Raises KeyError."""
        return {call.prompt: call for call in self.calls}[prompt].answer(fields)


_GOOD_QUALITIES = (
    "Given information including movie descriptions and critic reviews, summarize the good "
    "qualities in this movie that led to a favorable rating."
)
_YES_NO = ("YES", "NO")

MOVIES = (
    Query(
        "T1",
        "movies",
        "SELECT movietitle FROM movies WHERE {} = 'Yes'",
        (
            Call(
                "Given the following fields, answer in one word, 'Yes' or 'No', whether the movie "
                "would be suitable for kids. Answer with ONLY 'Yes' or 'No'.",
                "movies.*",
                2,
                ("Yes", "No"),
            ),
        ),
    ),
    Query(
        "T2",
        "movies",
        "SELECT {} FROM movies",
        (Call(_GOOD_QUALITIES, "reviewcontent, movieinfo", 29),),
    ),
    Query(
        "T3",
        "movies",
        "SELECT {1} FROM movies WHERE {0} = 'NEGATIVE'",
        (
            Call(
                "Given the following review, answer whether the sentiment associated is "
                "'POSITIVE' or 'NEGATIVE'. Answer in all caps with ONLY 'POSITIVE' or 'NEGATIVE':",
                "reviewcontent",
                2,
                ("POSITIVE", "NEGATIVE"),
            ),
            Call(_GOOD_QUALITIES, "reviewtype, reviewcontent, movieinfo, genres", 29),
        ),
    ),
    Query(
        "T4",
        "movies",
        "SELECT AVG({}) AS averagescore FROM movies",
        (
            Call(
                "Given the following fields of a movie description and a user review, assign a "
                "sentiment score for the review out of 5. Answer with ONLY a single integer "
                "between 1 (bad) and 5 (good).",
                "reviewcontent, movieinfo",
                2,
                tuple("12345"),
            ),
        ),
    ),
)

BEER = (
    "Based on the beer descriptions, does this beer have European origin? "
    "Answer 'YES' if it does or 'NO' if it doesn't."
)
_OVERVIEW = (
    "Given the following fields, provide an high-level overview on the beer and review in a 20 "
    "words paragraph."
)


def _filter(table: str, shown: str, prompt: str, ours: bool = False) -> Query:
    """T1 over all fields, answered YES or NO."""
    template = f"SELECT {shown} FROM {table} WHERE {{}} = 'YES'"
    return Query("T1", table, template, (Call(prompt, f"{table}.*", 2, _YES_NO),), ours)


def _projection(table: str, prompt: str, tokens: int, ours: bool = False) -> Query:
    """T2 over all fields."""
    return Query(
        "T2", table, f"SELECT {{}} FROM {table}", (Call(prompt, f"{table}.*", tokens),), ours
    )


OTHERS = (
    _filter("beer", '"beer/name"', BEER),
    _projection("beer", _OVERVIEW, 38),
    _filter(
        "posts",
        "PostId",
        "Given the following fields related to posts in an online codebase community, answer "
        "whether the post is related to statistics. Answer with only 'YES' or 'NO'.",
    ),
    _projection(
        "posts",
        "Given the following fields related to posts in an online codebase community, summarize "
        "how the comment Text related to the post body.",
        43,
    ),
    _filter("ratebeer", '"beer/name"', BEER, ours=True),
    _projection("ratebeer", _OVERVIEW, 38, ours=True),
    _filter(
        "contributions",
        "NAME",
        "Given the following fields of a campaign contribution, answer whether its giver works in "
        "the public sector. Answer with only 'YES' or 'NO'.",
        ours=True,
    ),
    _projection(
        "contributions",
        "Given the following fields of a campaign contribution, describe its giver in a sentence.",
        29,
        ours=True,
    ),
)

QUERIES = tuple(sorted((*MOVIES, *OTHERS), key=lambda query: query.type))
"""By type."""
