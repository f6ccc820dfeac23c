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
from typing import Any

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
from relquery.prompt import SPEAKERS, Sampling

Children = tuple[Node, ...]


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
    if line.word not in _WORDS:
        error = line.error(f"one of {', '.join(_WORDS)}")
        raise QueryError(f"{error}{did_you_mean(line.word, _WORDS)}")
    try:
        node = _node(line, tuple(children))
    except _Unexpected as expected:
        raise line.error(str(expected)) from None
    except RelqueryError as error:
        raise QueryError(f"Line {line.number} of the tree: {error}") from error
    if parents:
        parents[-1][1].append(node)
    return node


class _Unexpected(Exception):  # noqa: N818
    """The text that was expected in a line."""


_TEXTS = {role.value: role for role in SPEAKERS}
_WORDS = (
    *_TEXTS, "seq", "bag", "plus", "generate", "prepare", "chat", "retrieve", "fragment",
)  # fmt: skip
_DECODER = json.JSONDecoder()
_SAMPLING = [setting.name for setting in fields(Sampling)]


def _node(line: _Line, children: Children) -> Node:  # noqa: PLR0911
    """The node of a line. Raises _Unexpected, and what its constructor raises."""
    word = line.word
    if word in (*_TEXTS, "fragment") and children:
        raise _Unexpected(f"no indented line below it, as '{word}' has no children")
    if word in ("generate", "prepare", "retrieve") and len(children) != 1:
        raise _Unexpected(f"{word} with one child, indented by two spaces; it has {len(children)}")
    if word in ("seq", "plus", "prepare") and line.rest:
        raise _Unexpected(f"'{word}' alone on its line")
    match word:
        case "seq":
            return Seq(children)
        case "plus":
            return Bag(children, independent=True)
        case "bag":
            return Bag(children, _string(line))
        case "generate":
            return Generate(children[0], _sampling(line))
        case "chat":
            return Chat(children, _sampling(line))
        case "prepare":
            return Prepare(children[0])
        case "fragment":
            return Fragment(_string(line))
        case "retrieve":
            try:
                corpus, end = _DECODER.raw_decode(line.rest)
            except (ValueError, RecursionError):
                raise _Unexpected("a corpus as a JSON string after 'retrieve'") from None
            settings = _settings(line.rest[end:].removeprefix(" "), ["limit"], "limit=5")
            return Retrieve(children[0], corpus, **settings)
    return Text(_string(line), _TEXTS[word])


def _string(line: _Line) -> str:
    try:
        value = json.loads(line.rest)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, str):
        raise _Unexpected(f"a JSON string after '{line.word}'")
    return value


def _sampling(line: _Line) -> Sampling:
    if not line.rest:
        return Sampling()
    settings = _settings(line.rest, _SAMPLING, "max_tokens=16")
    for name in ("stop", "labels"):
        if not isinstance(settings.get(name, []), list):
            raise _Unexpected(f"a list of strings after '{name}='")
    return Sampling(**settings)


def _settings(text: str, names: list[str], example: str) -> dict[str, Any]:
    """Settings `name=JSON`, separated by one space."""
    settings: dict[str, Any] = {}
    end = 0
    while end < len(text):
        name, equals, _ = text[end:].partition("=")
        if not equals or name not in names:
            raise _Unexpected(f"settings like {example}; the names are {', '.join(names)}")
        if name in settings:
            raise _Unexpected(f"'{name}=' only once")
        try:
            settings[name], end = _DECODER.raw_decode(text, end + len(name) + 1)
        except (ValueError, RecursionError):
            raise _Unexpected(f"a JSON value after '{name}='") from None
        if text[end : end + 1] not in ("", " "):
            raise _Unexpected(f"one space after the value of '{name}='")
        end += 1
    return settings
