"""What a span query asks, by a naive walk over its tree: each character, and what it sees.

A reference for lowering, rendering and the engine: it knows no span, chain or key. A character is a
token here. Texts are the user's, and the model has no chat template.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from relquery.ir.nodes import Bag, Fragment, Generate, Node, Prepare, Seq, Text

END = "\nAnswer:"
Answer = Callable[["Sheet"], str]


@dataclass(frozen=True)
class Said:
    """A text. place: texts of one place that follow one another are neighbours; 0: messages."""

    content: str
    place: int


@dataclass(frozen=True)
class Apart:
    """What a child of plus holds. answer: to what is inside; None if it is no generation."""

    inside: list[Said | Apart]
    answer: str | None = None


@dataclass
class Sheet:
    """Characters in document order. paths: the children of plus around each, from outside in."""

    text: str
    paths: list[tuple[int, ...]]

    def mask(self) -> list[list[bool]]:
        """By character, whether it sees each: itself, and those before it in its child of plus."""
        size = range(len(self.text))
        return [[key <= query and self._holds(query, key) for key in size] for query in size]

    def _holds(self, query: int, key: int) -> bool:
        own = self.paths[query]
        return self.paths[key][: len(own)] == own


def sheet_of(query: Generate, answer: Answer) -> Sheet:
    """The prompt of a generation. answer: what inner generations say to their prompts."""
    writer = _Writer()
    writer.prompt(_Walk(answer).prompt(query), ())
    return writer.sheet


class _Walk:
    def __init__(self, answer: Answer) -> None:
        self._answer, self._places = answer, count(1)

    def prompt(self, query: Generate) -> list[Said | Apart]:
        return self._parts(_all_there_is(query.input), 0)

    def _parts(self, node: Node, place: int) -> list[Said | Apart]:
        match node:
            case Text(content) | Fragment(content):
                return [Said(content, place)] if content else []
            case Prepare(input):
                return self._parts(input, place)
            case Bag(children, independent=True):
                return [apart for child in children for apart in self._apart(child)]
            case Bag(children, separator) if separator:
                parts: list[Said | Apart] = []
                for index, child in enumerate(children):
                    parts += [Said(separator, next(self._places))] if index else []
                    parts += self._parts(child, next(self._places))
                return parts
            case Seq(children) | Bag(children):
                return [part for child in children for part in self._parts(child, place)]
            case Generate():
                said = self._answer(sheet_of(node, self._answer))
                return [Said(said, place)] if said else []
        raise AssertionError(f"{node!r} is no part of these tests")

    def _apart(self, node: Node) -> list[Apart]:
        if isinstance(node, Generate):
            return [Apart(self.prompt(node), self._answer(sheet_of(node, self._answer)))]
        inside = self._parts(node, next(self._places))
        return [Apart(inside)] if inside else []


def _all_there_is(node: Node) -> Node:
    """A join of one child, plus included, is that child."""
    while True:
        if isinstance(node, Prepare):
            node = node.input
        elif isinstance(node, Seq | Bag) and not getattr(node, "separator", ""):
            kept = [child for child in node.children if child != Text("")]
            if len(kept) != 1:
                return node
            (node,) = kept
        else:
            return node


class _Writer:
    def __init__(self) -> None:
        self.sheet, self._numbers = Sheet("", []), count(1)

    def prompt(self, parts: list[Said | Apart], path: tuple[int, ...]) -> None:
        """A prompt: a blank line parts its messages, and it ends as the model expects."""
        self._parts(parts, path, framed=True)
        self._text(END, path)

    def _parts(self, parts: list[Said | Apart], path: tuple[int, ...], *, framed: bool) -> None:
        before: Said | None = None
        for part in parts:
            if isinstance(part, Apart):
                self._apart(part, (*path, next(self._numbers)))
                before = None
                continue
            if before is not None and before.place == part.place:
                if framed and part.place == 0:
                    self._text("\n\n", path)
                elif not (before.content[-1].isspace() or part.content[0].isspace()):
                    self._text("\n", path)
            self._text(part.content, path)
            before = part

    def _apart(self, part: Apart, path: tuple[int, ...]) -> None:
        if part.answer is None:
            self._parts(part.inside, path, framed=False)
        else:
            self.prompt(part.inside, path)
            self._text(part.answer, path)

    def _text(self, text: str, path: tuple[int, ...]) -> None:
        self.sheet.text += text
        self.sheet.paths += [path] * len(text)
