"""Span queries in files: the JSON wire form, or the text form."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relquery.errors import QueryError
from relquery.ir.forms.spnl.wire import WireQuery, from_wire
from relquery.ir.forms.text import parse_tree
from relquery.ir.nodes import Chat, Generate, Node
from relquery.ir.rewrite import rewrite
from relquery.spans.corpus import passages

_TEXT_FORMS = (".txt", ".span")
_JSON = ("{", "[", '"', "null", "true", "false")  # how JSON, and no tree as text, begins


def read_query(
    file: str, variables: Sequence[str], model: str, max_tokens: int | None = None
) -> WireQuery:
    """A query from a file, or from standard input for "-".

    variables: "NAME=VALUE" each, for placeholders. model, max_tokens: fill the placeholders
        {model} and {max_tokens} unless a variable does; without a limit ours holds.
    Raises QueryError, and OSError for a file that cannot be read.
    """
    text = _standard_input() if file == "-" else _read(Path(file))
    given = dict(_named(item, "--var", "n=4") for item in variables)
    if file.endswith(_TEXT_FORMS) or (file == "-" and not text.lstrip().startswith(_JSON)):
        if given:
            raise QueryError(
                "--var only fills placeholders in the JSON form. This is the text form: "
                "write the values into the text."
            )
        return WireQuery(parse_tree(text))
    for name, value in (("model", model), ("max_tokens", str(max_tokens or 0))):
        if f"{{{name}}}" in text:
            given.setdefault(name, value)
    try:
        return from_wire(text, given or None)
    except QueryError as error:
        hint = " Here: --var NAME=VALUE." if "placeholder" in str(error) else ""
        raise QueryError(f"{error}{hint}") from error


def read_corpora(query: WireQuery, files: Sequence[str]) -> dict[str, list[str]]:
    """What the query retrieves from: documents that came with it, and "NAME=FILE" each."""
    corpora = {name: passages(_decoded(name, text)) for name, text in query.documents.items()}
    for item in files:
        name, file = _named(item, "--corpus", "docs=notes.txt")
        corpora[name] = passages(_read(Path(file)))
    return corpora


def capped(node: Node, max_tokens: int | None) -> Node:
    """The query with no generation longer than `max_tokens`."""
    if max_tokens is None:
        return node

    def cap(node: Node) -> Node | None:
        if not isinstance(node, Generate | Chat) or node.sampling.max_tokens <= max_tokens:
            return None
        sampling = replace(node.sampling, max_tokens=max_tokens)
        if isinstance(node, Chat):
            return Chat(node.children, sampling)
        return Generate(node.input, sampling)

    return rewrite(node, [cap])


def _named(item: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise QueryError(f"{option} is {item!r}; write it as NAME=..., e.g. {option} {example}.")
    return name, value


def _standard_input() -> str:
    # As bytes where there are any: what the terminal's encoding makes of them is not asked.
    return _decoded("standard input", getattr(sys.stdin, "buffer", sys.stdin).read())


def _read(path: Path) -> str:
    return _decoded(str(path), path.read_bytes())


def _decoded(name: str, content: str | bytes) -> str:
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise QueryError(f"Byte {error.start} of {name} is not UTF-8; save it as UTF-8.") from None
