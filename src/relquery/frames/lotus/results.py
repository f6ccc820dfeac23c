"""Few-shot examples for an instruction, and columns, indexes and dtypes of results as LOTUS has
them, where a frame gives others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from relquery.errors import ConfigError, UnknownColumnError, type_of
from relquery.frames.expressions import NamedColumn, find_column, read_langex

_ANSWER, _WHY = "Answer", "Reasoning"
_FORM = "Answer Yes or No."
_YES = {True: "Yes", False: "No"}
Finish = Callable[[pd.DataFrame], pd.DataFrame]
"""What is made of the rows that a frame gives."""


def same(table: pd.DataFrame) -> pd.DataFrame:
    """The rows as they are."""
    return table


def free(name: str, *tables: pd.DataFrame) -> str:
    """A name that no column has in any case, as SQL ignores case: the name itself if it can be."""
    taken = {str(column).lower() for table in tables for column in table.columns}
    while name.lower() in taken:
        name += "_"
    return name


def beside(name: str, table: pd.DataFrame) -> str:
    """The name of a new column that replaces none: `name`, else `name_1`, `name_2` and so on."""
    free, number = name, 0
    while free in table.columns:
        number += 1
        free = f"{name}_{number}"
    return free


def in_place(names: Mapping[str, str]) -> Finish:
    """Rows whose new columns take the place of those with their names."""

    def finish(found: pd.DataFrame) -> pd.DataFrame:
        old = {name for new, name in names.items() if new != name and name in found.columns}
        columns = [name for name in found.columns if name not in names]
        new = [name for name, meant in names.items() if meant not in old]
        made = found[[*columns, *new]].copy()
        for name, meant in names.items():
            if meant in old:
                made[meant] = found[name]
        return made.rename(columns=dict(names))

    return finish


def with_keys(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """The rows that belong to a group: those without a missing key, as pandas groups them."""
    known = [key for key in keys if key in table.columns]
    return table.dropna(subset=known) if known and table[known].isna().any(axis=None) else table


def answers_first(answer: str, keys: Sequence[str]) -> Finish:
    """One row for each group: the answer and then the keys, each with the row number 0."""

    def finish(found: pd.DataFrame) -> pd.DataFrame:
        return found[[answer, *keys]].set_axis(pd.Index([0] * len(found)), axis="index")

    return finish


def ranked(keys: Sequence[str]) -> Finish:
    """Rows that are numbered from 0; with keys in each group."""

    def finish(found: pd.DataFrame) -> pd.DataFrame:
        if not keys:
            return found.reset_index(drop=True)
        numbers = found.groupby(list(keys), sort=False, observed=True).cumcount()
        return found.set_axis(pd.Index(numbers.to_numpy()), axis="index")

    return finish


def with_scores(name: str) -> Finish:
    """Rows whose scores are float32, as vector stores give them."""
    return lambda found: found.assign(**{name: found[name].astype("float32")})


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a similarity join, with the numbers of their rows as a last column.

    indexes: of the left and the right. names: of the columns of the result, in its order, by those
    of the frame's. scores: the name of the score in the result.
    """

    left: pd.DataFrame
    right: pd.DataFrame
    indexes: tuple[pd.Index[Any], pd.Index[Any]]
    names: Mapping[str, str]
    score: str
    rows: tuple[str, str]
    keeps_index: bool

    @staticmethod
    def of(
        left: pd.DataFrame,
        right: pd.DataFrame,
        suffixes: tuple[str, str],
        score: str,
        keeps_index: bool,
    ) -> Sides:
        """Sides of a join. suffixes: of columns that both have. score: the name of the score."""
        rows = free("_left_id", left, right), free("_right_id", left, right)
        near, other = (
            table.assign(**{name: range(len(table))})
            for table, name in zip((left, right), rows, strict=True)
        )
        inner = free(score, left, right)
        lower = [{str(name).lower() for name in table.columns} for table in (left, right)]
        sides = zip((left, right), ("left", "right"), suffixes, strict=True)
        of_left, of_right = (
            {
                f"{name}:{side}" if str(name).lower() in lower[0] & lower[1] else str(name): (
                    f"{name}{suffix}" if name in left.columns and name in right.columns else name
                )
                for name in table.columns
            }
            for table, side, suffix in sides
        )
        numbers = dict(zip(rows, ("_left_id", "_right_id"), strict=True))
        names = {**of_left, **numbers, inner: score, **of_right}
        return Sides(near, other, (left.index, right.index), names, inner, rows, keeps_index)

    def finish(self, found: pd.DataFrame) -> pd.DataFrame:
        """The rows with the index of the left, the score before the right, as float32."""
        places = [found[name].to_numpy() for name in self.rows]
        mine, others = (
            index.take(place) for index, place in zip(self.indexes, places, strict=True)
        )
        found = found[list(self.names)].set_axis(mine, axis="index")
        found = with_scores(self.score)(found)
        if self.keeps_index:
            found = found.assign(**dict(zip(self.rows, (mine, others), strict=True)))
        else:
            found = found.drop(columns=list(self.rows))
        return found.rename(columns=dict(self.names))


def asked(
    instruction: str,
    verb: str,
    examples: object = None,
    system_prompt: str | None = None,
    *,
    is_filter: bool = False,
    reasons: bool = False,
    note: str = "",
) -> str:
    """An instruction with what else a verb was given to say.

    reasons: whether the model reasons first, and then gives its answer in a field of its own.
    """
    text = with_examples(instruction, examples, verb, is_filter=is_filter)
    if reasons:
        text = "\n".join([text.removesuffix(f"\n{_FORM}"), *([doubled(note)] if note else [])])
    if is_filter and (reasons or system_prompt) and "?" not in text:
        text = f"Is this true? {text}"
    return f"{doubled(system_prompt)}\n\n{text}" if system_prompt else text


def with_examples(instruction: str, examples: object, verb: str, *, is_filter: bool = False) -> str:
    """An instruction with examples below it, one for each row.

    examples: a DataFrame with the columns that the instruction names and their `Answer`; None for
        no examples. is_filter: answers are Yes or No, given as such or as booleans.

    Raises ConfigError.
    """
    if examples is None:
        return instruction
    if not isinstance(examples, pd.DataFrame) or _ANSWER not in examples.columns:
        is_frame = isinstance(examples, pd.DataFrame)
        what = "has no column 'Answer'" if is_frame else f"is {type_of(examples)}"
        raise ConfigError(
            f"examples of {verb} {what}. It must be a DataFrame with the columns that the "
            "instruction names and a column 'Answer'."
        )
    rows = _rows(examples[_names(instruction, list(examples.columns), verb)])
    answers = [f"{_ANSWER}: {answer}" for answer in _answers(examples[_ANSWER], is_filter, verb)]
    why = examples[_WHY] if _WHY in examples.columns else [None] * len(rows)
    shown = [
        doubled("\n".join([row, *([] if reason is None else [f"{_WHY}: {reason}"]), answer]))
        for row, reason, answer in zip(rows, why, answers, strict=True)
    ]
    whole = f"Is this true? {instruction}" if is_filter and "?" not in instruction else instruction
    # relquery adds this only to a prompt that does not have both words, as examples may have.
    form = [_FORM] if is_filter else []
    return "\n".join([whole, "", "Examples:", *shown, *form])


def _names(instruction: str, columns: list[str], verb: str) -> list[str]:
    """The columns that an instruction names, without the sides of a join."""

    def find(name: str) -> NamedColumn:
        for candidate in (name, name.rpartition(":")[0]):
            try:
                return NamedColumn(find_column(candidate, columns), "")
            except UnknownColumnError:
                continue
        raise ConfigError(
            f"examples of {verb} has no column {name!r}, which the instruction names. Columns: "
            f"{', '.join(columns)}."
        )

    return [field.name for field in read_langex(instruction, find, verb=verb).fields]


def _rows(examples: pd.DataFrame) -> list[str]:
    """Each row as JSON, as the model sees the rows that it is asked about."""
    known = examples.astype(object).where(examples.notna(), None)
    return [
        json.dumps(dict(row), ensure_ascii=False, default=str)
        for row in known.to_dict(orient="records")
    ]


def _answers(answers: pd.Series, is_filter: bool, verb: str) -> list[str]:
    if not is_filter:
        return [str(answer) for answer in answers]
    known = {**{str(value).lower(): text for value, text in _YES.items()}, "yes": "Yes", "no": "No"}
    texts = [str(answer).strip().lower() for answer in answers]
    for text in texts:
        if text not in known:
            raise ConfigError(f"examples of {verb} has the Answer {text!r}; it must be Yes or No.")
    return [known[text] for text in texts]


def doubled(text: str) -> str:
    """Braces as an instruction writes those that name no column."""
    return text.replace("{", "{{").replace("}", "}}")
