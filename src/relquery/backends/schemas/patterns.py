"""Patterns of strings: those that mean the same to JSON Schema and to the grammar."""

from __future__ import annotations

import re

from relquery.errors import ConfigError

_CLASS = re.compile(
    r"\[\^?(?:\\[dwsnrtfv]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^\w\s]|[^\\\[\]&~-]|&(?!&)|~(?!~)"
    r"|-(?!-))*\]"
)
_TOKEN = re.compile(
    r"\\[dwsDWSnrtfv]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^\w\s]"  # escapes
    r"|\(\?:|\((?!\?)|[)|^$.]"
    r"|[^\\()\[\]{}|^$.*+?]",
)
_REPETITION = re.compile(r"(?:[*+?]|\{[0-9]{1,6}(?:,[0-9]{0,6})?\})\??")
_ESCAPE = re.compile(r"\\.")
_BEFORE_ATOMS = ("(", "(?:", "|", "^", "$")
_LONGEST = 4_096


_SPACES = r" \t\n\r\f\v"
_MORE_SPACES = r"\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_MEANT = {
    r"\d": "0-9",
    r"\w": "A-Za-z0-9_",
    r"\s": _SPACES,
}
_MEANT_ALONE = {
    ".": r"[^\n\r\u2028\u2029]",
    r"\D": "[^0-9]",
    r"\W": "[^A-Za-z0-9_]",
    r"\S": f"[^{_SPACES}{_MORE_SPACES}\\x85]",
} | {short: f"[{inside}]" for short, inside in _MEANT.items()}


def pattern_of(pattern: str, where: str) -> str:
    """The pattern with its short forms written out, as ECMA-262 understands them.

    Raises ConfigError for a pattern with something else than text, classes, groups, alternatives,
    repetitions, and `^` and `$` at the ends.
    """
    if len(pattern) > _LONGEST:
        raise ConfigError(
            f"{where} has a pattern of {len(pattern):,} characters; the most is {_LONGEST:,}."
        )
    at, found = 0, list[str]()
    while at < len(pattern):
        in_class = _CLASS.match(pattern, at)
        token = in_class or _TOKEN.match(pattern, at)
        text = token[0] if token else pattern[at : at + 2]
        is_amiss = (text == "^" and at > 0) or (text == "$" and at + 1 < len(pattern))
        if token is None or is_amiss:
            raise ConfigError(
                f"{where} has the pattern {pattern[:80]!r}, in which {text!r} is not supported. "
                "Use text, classes such as [a-z], groups, alternatives and repetitions, with ^ "
                "and $ at the ends."
            )
        found.append(_written_out(text) if in_class else _MEANT_ALONE.get(text, text))
        at = token.end()
        repetition = _REPETITION.match(pattern, at) if text not in _BEFORE_ATOMS else None
        if repetition:
            found.append(repetition[0])
            at = repetition.end()
    return "".join(found)


def _written_out(given: str) -> str:
    """A class in which no other class has a short form."""
    return _ESCAPE.sub(lambda found: _MEANT.get(found[0], found[0]), given)
