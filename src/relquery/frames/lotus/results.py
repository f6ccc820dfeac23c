"""Columns, indexes and dtypes of results as LOTUS has them, where a frame gives others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

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
    found, number = name, 0
    while found in table.columns:
        number += 1
        found = f"{name}_{number}"
    return found


def renamed(names: Mapping[str, str]) -> Finish:
    """Rows whose new columns get their names, which SQL could not tell from others."""
    return lambda found: found.rename(columns=dict(names))


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
        one, other = (
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
        return Sides(one, other, (left.index, right.index), names, inner, rows, keeps_index)

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
