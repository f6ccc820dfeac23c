"""What a call asks, apart from its fields. Every function that calls a model becomes such a call.

    AI_FILTER('Is it late?', message)  =>  a call with labels Yes and No, compared with 'Yes'

In the tree of a statement it is a `Call`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from relquery.config import Nulls, PromptForm, QueryConfig
from relquery.prompt import Sampling
from relquery.sql.types.shape import Output

Kind = Literal["row", "score", "group", "match"]

_PLAIN_NAME = re.compile(r'[^\s",:](?:[^",:\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*[^\s",:])?')
_dump = json.JSONEncoder(ensure_ascii=False).encode


def label_of(name: str) -> str:
    """The name of a field as sent in lines: as JSON if it has characters that end a name."""
    return name if _PLAIN_NAME.fullmatch(name) else json_in_line(name)


def json_in_line(text: str) -> str:
    """A text as JSON in one line."""
    # JSON keeps some characters that end a line for many readers.
    return re.sub("[\x7f-\x9f\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", _dump(text))


@dataclass(frozen=True, slots=True)
class Worded:
    """A text of a prompt that each form words in its own way."""

    json: str
    lines: str

    @classmethod
    def name(cls, name: str) -> Worded:
        """The name of a field, as it stands in the data."""
        return cls(f'"{name}"', label_of(name))


Query = tuple[str | int | Worded, ...]
"""The text of a prompt; a number stands for the text of that field."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a call asks.

    query: the prompt's text. Fields that have no place in it are sent as data after it, in any
        order.
    output: the type of the answers; None for text.
    kind: "row": one answer for the fields. "score": the probability of the first label, or the
        mean of labels that are numbers. "group": one answer for the list that the field holds,
        which may take several calls. "match": whether two rows match, one of each side; a call
        decides about one row and many of the other side.
    retry: whether an invalid answer is asked for once more, with the reason.
    sides: with "match", the side that each field is of, 0 or 1; known once the call is planned.
    form: how fields are written; nulls: what is done where all are NULL (see QueryConfig); None for
        the connection's default. See in_form.
    function: the name as the user wrote it, in lower case.
    """

    query: Query
    sampling: Sampling = field(default_factory=Sampling)
    output: Output | None = None
    kind: Kind = "row"
    retry: bool = False
    sides: tuple[int, ...] = ()
    form: PromptForm | None = None
    nulls: Nulls | None = None
    function: str = field(default="llm", compare=False, repr=False)

    @property
    def sent(self) -> tuple[str | int, ...]:
        """The query in the words of the form."""
        is_lines = self.form == "lines"
        return tuple(
            (one.lines if is_lines else one.json) if isinstance(one, Worded) else one
            for one in self.query
        )

    @property
    def prompt(self) -> str:
        """The prompt to show; `{0}` stands for the first field."""
        return "".join(part if isinstance(part, str) else f"{{{part}}}" for part in self.sent)

    @property
    def asks(self) -> object:
        """Equal for tasks with the same requests for the same fields."""
        kind = "row" if self.kind == "score" else self.kind
        valid = str(self.output) if self.retry else ""
        return self.sent, self.sampling, kind, self.form, self.nulls, self.sides, valid

    @property
    def has_places(self) -> bool:
        """Whether fields have a place in the prompt's text."""
        return any(isinstance(part, int) for part in self.query)

    @property
    def transport(self) -> pa.DataType:
        """The Arrow type that keeps the values of answers until DuckDB reads them."""
        if self.output is None or self.kind == "match":
            return pa.large_string()
        return self.output.transport

    def in_form(self, default: QueryConfig) -> Task:
        """The task as it is sent: as the call says, or else by default.

        Where lines are sent, and labels are not weighed, it is left to the prompt to tell them if
        it names them all.
        """
        form: PromptForm = "json" if self.kind == "match" else self.form or default.form
        sampling = self.sampling
        if form == "lines" and sampling.labels and not sampling.scored:
            sampling = replace(sampling, told=names_all(self.sent, sampling.labels))
        nulls = self.nulls or default.nulls
        return replace(self, sampling=sampling, form=form, nulls=nulls)


def names_all(query: Iterable[str | int], labels: Iterable[str]) -> bool:
    """Whether the text of a query has all of some labels, in capital or small letters."""
    text = "".join(part for part in query if isinstance(part, str)).lower()
    return all(label.lower() in text for label in labels)
