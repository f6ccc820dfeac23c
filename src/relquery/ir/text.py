"""The one text form of a tree, for people and golden files: `parse_tree(print_tree(t)) == t`.

One node a line, children two spaces deeper, strings as JSON:

    generate max_tokens=16 allowed=["Yes", "No"]
      seq
        system "You are a data analyst."
        bag ",\\n"
          user "\\"title\\": \\"Alien\\""
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Generate, Node, Seq, Text
from relquery.prompt import Role, Sampling

_DECODER = json.JSONDecoder()
_ROLES = {role.value: role for role in Role}


def print_tree(node: Node) -> str:
    """The tree as text, without a newline at its end; `str(node)` is the same."""
    return str(node)


def parse_tree(text: str) -> Node:
    """Read what `print_tree` wrote. Raises QueryError with the line that cannot be read."""
    lines = [_line(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise QueryError('The text of a tree is empty; expected a node, e.g. user "Hello".')
    node, rest = _node(lines, 0)
    if rest < len(lines):
        raise lines[rest].error("a deeper line, as a tree has one root")
    return node


def _setting_names() -> list[str]:
    return [setting.name for setting in fields(Sampling)]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    depth: int
    word: str
    rest: str

    def error(self, expected: str) -> QueryError:
        got = f"{self.word} {self.rest}".strip()
        return QueryError(f"Line {self.number} of the tree is '{got}'; expected {expected}.")


def _line(number: int, line: str) -> _Line:
    content = line.lstrip(" ")
    word, _, rest = content.partition(" ")
    parsed = _Line(number, (len(line) - len(content)) // 2, word, rest)
    if (len(line) - len(content)) % 2:
        raise parsed.error("an indent of two spaces per level")
    return parsed


def _node(lines: list[_Line], at: int) -> tuple[Node, int]:
    """The node at line `at`, and the first line after it."""
    line = lines[at]
    children: list[Node] = []
    at += 1
    while at < len(lines) and lines[at].depth > line.depth:
        if lines[at].depth != line.depth + 1:
            raise lines[at].error(f"an indent of {2 * (line.depth + 1)} spaces")
        child, at = _node(lines, at)
        children.append(child)
    return _build(line, tuple(children)), at


def _build(line: _Line, children: tuple[Node, ...]) -> Node:
    if line.word in _ROLES and not children:
        return Text(_string(line), _ROLES[line.word])
    if line.word == "seq" and not line.rest:
        return Seq(children)
    if line.word == "bag":
        return Bag(children, _string(line))
    if line.word == "generate" and len(children) == 1:
        return Generate(children[0], _parse_sampling(line))
    raise line.error(
        f"one of {', '.join(_ROLES)} with a string, seq, bag with a separator, or generate with "
        "one child"
    )


def _string(line: _Line) -> str:
    try:
        value = json.loads(line.rest)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, str):
        raise line.error(f"a JSON string after '{line.word}'")
    return value


def _parse_sampling(line: _Line) -> Sampling:
    settings: dict[str, Any] = {}
    at = 0
    while at < len(line.rest):
        name, equals, _ = line.rest[at:].partition("=")
        if not equals or name not in _setting_names():
            raise line.error(f"settings like max_tokens=16, of {', '.join(_setting_names())}")
        try:
            value, at = _DECODER.raw_decode(line.rest, at + len(name) + 1)
        except json.JSONDecodeError:
            raise line.error(f"a JSON value after '{name}='") from None
        settings[name] = tuple(value) if isinstance(value, list) else value
        at += 1
    return Sampling(**settings)
