"""The one text form of a tree, for people and golden files: `parse_tree(print_tree(t)) == t`.

One node per line, children indented by two spaces, strings as JSON:

    generate max_tokens=16 labels=["Yes", "No"]
      seq
        system "You are a data analyst."
        bag ",\n"
          user "\"title\": \"Alien\""
        plus
          prepare
            user "A review."
        retrieve "reviews" limit=3
          user "Is it good?"
"""

from __future__ import annotations

import copyreg
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from relquery.errors import QueryError, RelqueryError, did_you_mean, type_of
from relquery.ir.nodes import (
    NODES,
    Bag,
    Chat,
    Fragment,
    Generate,
    Node,
    Prepare,
    Retrieve,
    Seq,
    Text,
    Tree,
)
from relquery.prompt import SPEAKERS, Role, Sampling

Children = tuple[Node, ...]
_T = TypeVar("_T")


def _pickled(node: Tree) -> tuple[Callable[[str], Tree], tuple[str]]:
    return parse_tree, (str(node),)


for _kind in NODES:  # pickle would recurse
    copyreg.pickle(_kind, _pickled)


def print_tree(node: Node) -> str:
    """The tree as text, without a trailing newline; same as `str(node)`."""
    return str(node)


def parse_tree(text: str) -> Node:
    """Read what `print_tree` wrote. Raises QueryError with the line that cannot be read."""
    if not isinstance(text, str):
        raise QueryError(f"The text of a tree is {type_of(text)}; it must be a string.")
    root: Node | None = None
    parents: list[tuple[_Line, list[Node]]] = []  # lines still open, with their finished children
    for number, content in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not content.strip():
            continue
        line = _line(number, content)
        while len(parents) > line.depth:
            root = _close(parents)
        if root is not None and not parents:
            raise line.error("an indented line, as a tree has one root")
        if line.depth != len(parents):
            raise line.error(f"an indent of {2 * len(parents)} spaces")
        parents.append((line, []))
    while parents:
        root = _close(parents)
    if root is None:
        raise QueryError('The text of a tree is empty; expected a node, e.g. user "Hello".')
    return root


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    depth: int
    word: str
    rest: str

    def error(self, expected: str) -> QueryError:
        got = f"{self.word} {self.rest}".strip()
        return QueryError(f"Line {self.number} of the tree is '{got}'; expected {expected}.")


def _line(number: int, content: str) -> _Line:
    stripped = content.lstrip(" ")
    word, _, rest = stripped.rstrip().partition(" ")
    indent = len(content) - len(stripped)
    line = _Line(number, indent // 2, word, rest)
    if indent % 2:
        raise line.error("an indent of two spaces per level")
    return line


def _close(parents: list[tuple[_Line, list[Node]]]) -> Node:
    """Build the deepest open node and hand it to its parent."""
    line, children = parents.pop()
    build = _BUILDERS.get(line.word)
    if build is None:
        error = line.error(f"one of {', '.join(_BUILDERS)}")
        raise QueryError(f"{error}{did_you_mean(line.word, _BUILDERS)}")
    node = build(line, tuple(children))
    if parents:
        parents[-1][1].append(node)
    return node


def _message(role: Role) -> Callable[[_Line, Children], Node]:
    return lambda line, children: Text(_string(line, children), role)


def _fragment(line: _Line, children: Children) -> Node:
    return Fragment(_string(line, children))


def _seq(line: _Line, children: Children) -> Node:
    _check_bare(line)
    return Seq(children)


def _plus(line: _Line, children: Children) -> Node:
    _check_bare(line)
    return Bag(children, independent=True)


def _bag(line: _Line, children: Children) -> Node:
    return Bag(children, _string(line))


def _generate(line: _Line, children: Children) -> Node:
    return Generate(_only(line, children), _sampling(line))


def _prepare(line: _Line, children: Children) -> Node:
    _check_bare(line)
    return Prepare(_only(line, children))


def _chat(line: _Line, children: Children) -> Node:
    return Chat(children, _sampling(line))


def _retrieve(line: _Line, children: Children) -> Node:
    try:
        corpus, end = _DECODER.raw_decode(line.rest)
    except (ValueError, RecursionError):
        raise line.error("a corpus as a JSON string after 'retrieve'") from None
    settings = _settings(line, line.rest[end:].removeprefix(" "), ["limit"], "limit=5")
    query = _only(line, children)
    return _checked(line, lambda: Retrieve(query, corpus, **settings))


_BUILDERS: dict[str, Callable[[_Line, Children], Node]] = {
    **{role.value: _message(role) for role in SPEAKERS},
    "seq": _seq,
    "bag": _bag,
    "plus": _plus,
    "generate": _generate,
    "prepare": _prepare,
    "chat": _chat,
    "retrieve": _retrieve,
    "fragment": _fragment,
}
_DECODER = json.JSONDecoder()
_SAMPLING = [setting.name for setting in fields(Sampling)]


def _only(line: _Line, children: Children) -> Node:
    if len(children) != 1:
        raise line.error(
            f"{line.word} with one child, indented by two spaces; it has {len(children)}"
        )
    return children[0]


def _check_bare(line: _Line) -> None:
    if line.rest:
        raise line.error(f"'{line.word}' alone on its line")


def _string(line: _Line, children: Children = ()) -> str:
    if children:
        raise line.error(f"no indented line below it, as '{line.word}' has no children")
    try:
        value = json.loads(line.rest)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, str):
        raise line.error(f"a JSON string after '{line.word}'")
    return value


def _sampling(line: _Line) -> Sampling:
    if not line.rest:
        return Sampling()
    settings = _settings(line, line.rest, _SAMPLING, "max_tokens=16")
    for name in ("stop", "labels"):
        if not isinstance(settings.get(name, []), list):
            raise line.error(f"a list of strings after '{name}='")
    return _checked(line, lambda: Sampling(**settings))


def _checked(line: _Line, build: Callable[[], _T]) -> _T:
    """Call `build`; its error message gets the line number."""
    try:
        return build()
    except RelqueryError as error:
        raise QueryError(f"Line {line.number} of the tree: {error}") from error


def _settings(line: _Line, text: str, names: list[str], example: str) -> dict[str, Any]:
    """Settings `name=JSON`, separated by one space."""
    settings: dict[str, Any] = {}
    at = 0
    while at < len(text):
        name, equals, _ = text[at:].partition("=")
        if not equals or name not in names:
            raise line.error(f"settings like {example}; the names are {', '.join(names)}")
        if name in settings:
            raise line.error(f"'{name}=' only once")
        try:
            settings[name], at = _DECODER.raw_decode(text, at + len(name) + 1)
        except (ValueError, RecursionError):
            raise line.error(f"a JSON value after '{name}='") from None
        if text[at : at + 1] not in ("", " "):
            raise line.error(f"one space after the value of '{name}='")
        at += 1
    return settings
