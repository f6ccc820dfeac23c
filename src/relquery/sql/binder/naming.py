"""Names of fields that are expressions: made of the columns and functions in it, never its text.

upper(title)  =>  upper_title          price * 2  =>  price          count(*)  =>  count
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from relquery.sql.parser.tree import Column, Constant, Function, Node, Star, Type

_MOST_WORDS = 4
_PLAIN_NAME = re.compile(r'[^\s",:](?:[^",:\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*[^\s",:])?')
_dump = json.JSONEncoder(ensure_ascii=False).encode
_SYNTAX = ("row", "list_value", "struct_pack", "if", "llm")
_IN_WORDS = {"count_star": "count"}


def field_name(node: Node) -> str:
    """What the model reads as the name of an expression."""
    if isinstance(node, Column):
        return node.name
    words = list(dict.fromkeys(_words(node)))[:_MOST_WORDS]
    return "_".join(words) or "value"


def label_of(name: str) -> str:
    """The name of a field as sent in lines: as JSON if it has characters that end a name."""
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """A text as JSON in one line."""
    # JSON keeps some characters that end a line for many readers.
    return re.sub("[\x7f-\x9f\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", _dump(text))


def _words(node: Node) -> Iterator[str]:
    if isinstance(node, Column):
        yield node.name
        return
    if isinstance(node, Constant | Type | Star):
        return
    if node.args.get("class") == "CALL":
        yield "llm"
        return
    if isinstance(node, Function):
        if node.catalog:
            yield node.schema
        if not node.is_operator and node.name.lower() not in _SYNTAX:
            yield _IN_WORDS.get(node.name.lower(), node.name.lower())
    for child in node.children():
        yield from _words(child)
