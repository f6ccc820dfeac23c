"""When a prediction is right: equal values, equal texts after normalisation, or close numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from numbers import Number
from typing import Any

from relquery.errors import ConfigError

Normalize = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Matching:
    """How values are compared.

    normalize: applied to both texts; None compares them as they are. tolerance: by how much numbers
    may differ; None for not at all.
    """

    normalize: Normalize | None = None
    tolerance: float | None = None

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
    first = next((one for one in values if one is not None), None)
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
