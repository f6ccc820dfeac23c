"""What verbs are given: names, labels, counts and shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from relquery.errors import ConfigError, type_of

Names = str | Sequence[str]


def names_in(*given: Names) -> list[str]:
    """Names that were given one by one or in lists; what is neither is refused as a name later."""
    one_each = (
        one if isinstance(one, Iterable) and not isinstance(one, str) else [one] for one in given
    )
    return [name for names in one_each for name in names]


def check_count(value: object, name: str, verb: str, *, least: int = 1) -> int:
    """The same. Raises ConfigError unless it is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(
            f"{name} of {verb} is {value!r}; it must be a whole number, {least} or more."
        )
    return value


def check_share(value: object, name: str, verb: str) -> None:
    """Raises ConfigError unless it is above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigError(f"{name} of {verb} is {value!r}; it must be above 0 and at most 1.")


def check_labels(labels: object, verb: str) -> list[object]:
    """Labels as a list: texts, whole numbers, or dicts of a label and its description.

    Raises ConfigError for one text, for no label, and for one that is empty or given twice.
    """
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        parts = labels.split(",") if isinstance(labels, str) else ["yes", "no"]
        write = [part.strip() for part in parts]
        raise ConfigError(f"labels of {verb} is {labels!r}; it must be a list: labels={write!r}.")
    found = list(labels)
    if not found:
        raise ConfigError(f"{verb} has no labels. Give at least one: labels=['yes', 'no'].")
    seen: set[str] = set()
    for label in found:
        name = label.get("label") if isinstance(label, Mapping) else label
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise ConfigError(f"labels of {verb} has {name!r}, {type_of(name)}; a label is a text.")
        if not str(name).strip():
            raise ConfigError(f"labels of {verb} has an empty text. Remove it.")
        if str(name) in seen:
            raise ConfigError(f"labels of {verb} has {name!r} more than once. Give it once.")
        seen.add(str(name))
    return found
