"""Arguments of verbs, checked and written as SQL: names, labels, counts, options and outputs.

output="tag VARCHAR", output="name, amount DECIMAL"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from relquery.errors import ConfigError, type_of, unknown
from relquery.frames.expressions import NamedColumn
from relquery.sql.binder.arguments import OF_ALL
from relquery.sql.names import quoted, quoted_text

_PIECES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[^'"]""", re.DOTALL)
_NAMED = re.compile(r'\s*("(?:[^"]|"")+"|\w+)\s*(.*)', re.DOTALL)
_TEXT = "VARCHAR"
Names = str | Sequence[str]


def names_in(*given: Names) -> list[str]:
    """Names that were given one by one or in lists; what is neither is refused as a name later."""
    one_each = (
        value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        for value in given
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
    texts = list(labels)
    if not texts:
        raise ConfigError(f"{verb} has no labels. Give at least one: labels=['yes', 'no'].")
    seen: set[str] = set()
    for label in texts:
        name = label.get("label") if isinstance(label, Mapping) else label
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise ConfigError(f"labels of {verb} has {name!r}, {type_of(name)}; a label is a text.")
        if not str(name).strip():
            raise ConfigError(f"labels of {verb} has an empty text. Remove it.")
        if str(name) in seen:
            raise ConfigError(f"labels of {verb} has {name!r} more than once. Give it once.")
        seen.add(str(name))
    return texts


def call(
    function: str,
    first: Sequence[str],
    fields: Iterable[NamedColumn],
    options: Mapping[str, object],
) -> str:
    """`function(first, ..., field, ..., option := value, ...)`."""
    given = [f"{name} := {literal(value)}" for name, value in options.items() if value is not None]
    return f"{function}({', '.join([*first, *(field.sql for field in fields), *given])})"


def literal(value: object) -> str:
    """A value as SQL: a text, a number, true or false, a list or a dict of these."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{quoted_text(key)}: {literal(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, str):
        return quoted_text(value)
    if isinstance(value, Iterable):
        return f"[{', '.join(map(literal, value))}]"
    raise ConfigError(f"{value!r} is not a text, a number or a list, so it cannot be an option.")


def check_options(options: Mapping[str, object], verb: str, *more: str) -> dict[str, object]:
    """The options of a verb's call. Raises ConfigError for one that no call has."""
    known = (*OF_ALL, *more)
    for name in options:
        if name not in known:
            raise ConfigError(unknown("option", name, known, of=verb))
    return dict(options)


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A new column. kind: its type in SQL."""

    name: str
    kind: str

    @property
    def is_text(self) -> bool:
        """Whether the value is the answer as it is."""
        return self.kind.upper() in (_TEXT, "TEXT", "STRING")


def read_outputs(text: object, verb: str) -> tuple[NewColumn, ...]:
    """The columns of a text such as `tag VARCHAR, stars INTEGER`; a name alone is VARCHAR.

    Raises ConfigError.
    """
    matches = [_NAMED.fullmatch(part) for part in _split(text)] if isinstance(text, str) else []
    outputs = tuple(
        NewColumn(_name(match[1]), " ".join(match[2].split()) or _TEXT)
        for match in matches
        if match is not None
    )
    if not outputs or len(outputs) < len(matches):
        raise ConfigError(
            f"output of {verb} is {text!r}; it must be a name and a type, e.g. 'tag VARCHAR', or "
            "several after commas."
        )
    check_names([output.name for output in outputs], f"output of {verb}")
    return outputs


def check_names(names: Iterable[object], verb: str) -> None:
    """Raises ConfigError for a name that is not a text, or that SQL could not tell from another."""
    taken: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"{verb} names a column {name!r}; it must be a text.")
        if name.lower() in taken:
            raise ConfigError(
                f"{verb} gives two columns the name {name!r}. Give each column its own name, which "
                "differs in more than case; rename one of them first if need be."
            )
        taken.add(name.lower())


def written(outputs: tuple[NewColumn, ...]) -> str:
    """Several outputs as one type, for the option `output` of SQL."""
    return ", ".join(f"{quoted(output.name)} {output.kind}" for output in outputs)


def _name(given: str) -> str:
    return given[1:-1].replace('""', '"') if given[0] == '"' else given


def _split(text: str) -> list[str]:
    """The parts between commas that are not in brackets or quotes."""
    parts, depth = [""], 0
    for piece in _PIECES.findall(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(piece, 0)
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
