"""Floating-point numbers as printed tables show them: with six digits.

All digits before the point are kept, and two behind it, so amounts of money stay as they are.
"""

from __future__ import annotations

import math
from typing import Any

_DIGITS, _DECIMALS = 6, 2
_MOST = 15  # digits that all floats have


def short(value: float) -> str:
    """A number in a table."""
    whole = len(str(int(abs(value)))) if math.isfinite(value) and abs(value) >= 1 else 0
    digits = max(_DIGITS, whole + _DECIMALS)
    return repr(value) if digits > _MOST else f"{value:.{digits}g}"


def rounded(value: Any) -> Any:
    """A value whose numbers, inside lists and structs too, are those that a table shows."""
    if isinstance(value, float):
        return float(short(value))
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(rounded, value))
    return value
