"""The options that every function takes: how answers are drawn and how long they may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from relquery.config import FORMS, NULLS, Nulls, PromptForm
from relquery.errors import QueryError, unknown
from relquery.prompt import Sampling
from relquery.sql.binder.arguments import Arguments, shown

_LABELS = "labels := ['Yes', 'No']."
_NUMBERS: dict[str, tuple[type, ...]] = {
    "max_tokens": (int,),
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": (int,),
    "seed": (int,),
}
OF_ALL = (*_NUMBERS, "stop", "form", "nulls")
"""Options of all functions."""


def take_form(given: Arguments) -> PromptForm | None:
    """How the fields of a call are written; None if it does not say."""
    form = given.option("form", (str,), "'json' or 'lines'")
    if form is not None and form not in FORMS:
        raise QueryError(f"{given.written}: " + unknown("form", form, FORMS))
    return cast(PromptForm | None, form)


def take_nulls(given: Arguments) -> Nulls | None:
    """What is done where all fields of a call are NULL; None if it does not say."""
    nulls = given.option("nulls", (str,), "'skip' or 'ask'")
    if nulls is not None and nulls not in NULLS:
        raise QueryError(f"{given.written}: " + unknown("nulls", nulls, NULLS))
    return cast(Nulls | None, nulls)


def drawn(given: Arguments, defaults: Sampling) -> Sampling:
    """The sampling that a call asks for. Takes its options; labels are the function's business."""
    found: dict[str, Any] = {}
    for name, kinds in _NUMBERS.items():
        expected = "a number" if float in kinds else "a whole number"
        if (value := given.option(name, kinds, expected)) is not None:
            found[name] = value
    if "stop" in given.options:
        found["stop"] = _texts("stop", given)
    return replace(defaults, **found)


def labels_in(given: Arguments) -> tuple[str, ...] | None:
    """The labels that a call sets; None if it sets none. Raises QueryError for an empty list."""
    if "labels" not in given.options:
        return None
    value = given.options["labels"]
    if isinstance(value, str):
        raise QueryError(f"labels of {given.written} is {value!r}; it must be a list: {_LABELS}")
    if isinstance(value, tuple | list):
        given.options["labels"] = tuple(str(one) if _is_whole(one) else one for one in value)
    found = _texts("labels", given)
    if not found:
        raise QueryError(f"{given.written} has no labels. Give at least one text: {_LABELS}")
    return found


def check_done(given: Arguments, *known: str) -> None:
    """Raises QueryError for options that a function does not have, and for too many arguments."""
    for name in given.options:
        raise QueryError(f"{given.written}: " + unknown("option", name, (*OF_ALL, *known)))


def _texts(name: str, given: Arguments) -> tuple[str, ...]:
    value = given.options.pop(name)
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, tuple | list) or not all(isinstance(one, str) for one in texts):
        raise QueryError(
            f"{name} of {given.written} is {shown(value)}; expected a string or a list of strings, "
            "e.g. ['Yes', 'No']."
        )
    return tuple(texts)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
