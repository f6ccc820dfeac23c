"""The columns of a result that are compared, and when a prediction is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from numbers import Number
from typing import Any

import pyarrow as pa

from relquery.errors import ConfigError, QueryError, unknown
from relquery.sql.exchange.python import to_plain
from relquery.sql.result import Result

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ScoredColumns:
    """The prediction, the right answer and the key of each row (empty tuples without a key)."""

    predictions: list[Any]
    truths: list[Any]
    keys: list[Key]

    @property
    def has_scores(self) -> bool:
        """Whether the predictions are numbers and the right answers booleans."""
        said = [prediction for prediction in self.predictions if prediction is not None]
        right = [truth for truth in self.truths if truth is not None]
        booleans = [isinstance(value, bool) for value in right]
        return all(map(is_number, said)) and bool(said and booleans) and all(booleans)


@dataclass(frozen=True, slots=True)
class Places:
    """Positions of the columns in a result."""

    keys: list[int]
    truth: int
    prediction: int


def find_places(
    names: Sequence[str], truth: str, prediction: str | None, key: Sequence[str]
) -> Places:
    """Find columns by their names. names: what the query returns. Raises ConfigError."""
    keys, truth_place = [_place(names, name) for name in key], _place(names, truth, _OF_TABLE)
    return Places(keys, truth_place, _prediction(names, prediction, {*keys, truth_place}))


_OF_TABLE = " truth must be a column that the query returns; join the table that has it."


def read_columns(
    result: Result, truth: str, prediction: str | None, key: Sequence[str]
) -> ScoredColumns:
    """Read the columns of a result. The arguments are those of `find_places`.

    Raises ConfigError for names that do not exist, QueryError for keys that repeat.
    """
    places = find_places(result.columns, truth, prediction, key)
    truths, predictions = _values(result, places.truth), _values(result, places.prediction)
    return ScoredColumns(predictions, truths, _keys(result, places.keys))


def _find(names: Sequence[str], name: str) -> int | None:
    """The place of a column; None if there is none. Upper and lower case are the same, as in SQL.

    Raises ConfigError.
    """
    if not isinstance(name, str):
        raise ConfigError(f"{name!r} must be the name of a column.")
    lower = [name.lower() for name in names]
    if lower.count(name.lower()) > 1:
        raise ConfigError(f"The query returns {name!r} more than once. Give each column a name.")
    return lower.index(name.lower()) if name.lower() in lower else None


def _place(names: Sequence[str], name: str, more: str = "") -> int:
    place = _find(names, name)
    if place is None:
        raise ConfigError(unknown("column", name, names, of="the result") + more)
    return place


def _prediction(names: Sequence[str], name: str | None, taken: set[int]) -> int:
    """The column of predictions: the one that is named, or the only one that is left."""
    if name is not None:
        return _place(names, name)
    left = [index for index in range(len(names)) if index not in taken]
    if len(left) != 1:
        raise ConfigError(
            f"The query returns {', '.join(names)}, and it is not clear which of them is the "
            "prediction. Give prediction='column'."
        )
    return left[0]


def _values(result: Result, at: int) -> list[Any]:
    kind = result.table.schema.field(at).type
    if pa.types.is_nested(kind):
        raise ConfigError(
            f"The column {result.columns[at]!r} has the type {kind}, which cannot be compared. Use "
            "booleans, numbers, text or dates, one value per row."
        )
    return to_plain(result.table.column(at), result.table.schema.field(at))


def _keys(result: Result, places: Sequence[int]) -> list[Key]:
    if not places:
        return [()] * len(result)
    keys = list(zip(*(_values(result, place) for place in places), strict=True))
    seen: set[Key] = set()
    for key in keys:
        if key in seen:
            raise QueryError(
                f"The query returns the key {', '.join(map(repr, key))} more than once. A key must "
                "identify one row."
            )
        seen.add(key)
    return keys


Normalize = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Matching:
    """Settings of the comparison of values."""

    normalize: Normalize | None = None
    """A function applied to both texts; None compares them as they are."""
    tolerance: float | None = None
    """By how much numbers may differ; None for not at all."""

    @classmethod
    def of(cls, normalize: bool | Normalize, tolerance: float | None) -> Matching:
        """Raises ConfigError for settings that are not valid."""
        if not isinstance(normalize, bool) and not callable(normalize):
            raise ConfigError(f"normalize is {normalize!r}; it must be True, False or a function.")
        is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
        if tolerance is not None and not (is_number and tolerance >= 0 and isfinite(tolerance)):
            raise ConfigError(f"tolerance is {tolerance!r}; it must be a number of at least 0.")
        function = (plain if normalize else None) if isinstance(normalize, bool) else normalize
        return cls(function, tolerance)

    def check(self, predictions: Sequence[Any], truths: Sequence[Any]) -> None:
        """Raises ConfigError for values that can never be equal, and for settings that do not fit
        them.
        """
        said, right = _kind(predictions), _kind(truths)
        if said and right and said != right:
            raise ConfigError(
                f"The predictions are {said} and the right answers are {right}, which are never "
                "equal. Cast one of them in the query."
            )
        kind = said or right
        if self.tolerance is not None and kind not in ("numbers", None):
            raise ConfigError(f"tolerance is for numbers; the right answers are {kind}.")
        if self.normalize is not None and kind not in ("text", None):
            raise ConfigError(f"normalize is for text; the right answers are {kind}.")

    def label(self, value: Any) -> Any:
        """The value after normalisation."""
        return value if self.normalize is None else self.normalize(value)

    def is_right(self, prediction: Any, truth: Any) -> bool:
        """Whether a prediction is right. Numbers are compared by their decimal digits."""
        if self.tolerance is None:
            return bool(self.label(prediction) == self.label(truth))
        if not (isfinite(prediction) and isfinite(truth)):
            return bool(prediction == truth)
        return abs(_decimal(prediction) - _decimal(truth)) <= _decimal(self.tolerance)

    @property
    def note(self) -> str | None:
        """How values are compared; None if they are compared as they are."""
        if self.normalize is plain:
            return "Texts are compared without case, outer white space and a full stop at the end."
        if self.normalize is not None:
            return "Texts are compared after normalize= was applied to both."
        if self.tolerance is not None:
            return f"Numbers are right if they differ by at most {self.tolerance:g}."
        return None


def plain(text: str) -> str:
    """A text in lower case with single spaces, and without a full stop at its end."""
    return " ".join(text.split()).rstrip(".").rstrip().casefold()


def _decimal(number: Any) -> Decimal:
    return number if isinstance(number, Decimal) else Decimal(str(number))


def _kind(values: Sequence[Any]) -> str | None:
    """The kind of some values of one SQL type; None if all are NULL."""
    first = next((value for value in values if value is not None), None)
    if first is None:
        return None
    if isinstance(first, bool):
        return "booleans"
    if is_number(first):
        return "numbers"
    return "text" if isinstance(first, str) else f"{type(first).__name__} values"


def is_number(value: Any) -> bool:
    """Whether a value is a number and not a boolean."""
    return isinstance(value, Number) and not isinstance(value, bool)
