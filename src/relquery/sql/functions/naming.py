"""Names of fields that are expressions: made of the columns and functions in it, never its text.

upper(title)  =>  upper_title          price * 2  =>  price          count(*)  =>  count
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from sqlglot import exp

from relquery.sql.read.source import call_number

_MOST_WORDS = 4
_PLAIN_NAME = re.compile(r'[^\s",:](?:[^",:\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*[^\s",:])?')
_dump = json.JSONEncoder(ensure_ascii=False).encode
_SYNTAX = (
    exp.Cast,
    exp.TryCast,
    exp.Try,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.And,
    exp.Or,
    exp.Array,
    exp.Struct,
    exp.Exists,
)


def field_name(node: exp.Expr) -> str:
    """What the model reads as the name of an expression."""
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
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


def _words(node: exp.Expr) -> Iterator[str]:
    if isinstance(node, exp.Column):
        if not isinstance(node.this, exp.Star):
            yield node.name
        return
    if isinstance(node, exp.Literal | exp.DataType):
        return
    is_call = isinstance(node, exp.Anonymous) and call_number(node) is not None
    if is_call:
        yield "llm"
        return
    if isinstance(node, exp.Anonymous):
        yield node.name.lower()
    elif isinstance(node, exp.Func) and not isinstance(node, _SYNTAX):
        yield node.sql_name().lower()
    elif isinstance(node, exp.Dot):
        yield from _words(node.this)
        if isinstance(node.expression, exp.Identifier):
            yield node.expression.name
            return
    for child in node.iter_expressions():
        yield from _words(child)
