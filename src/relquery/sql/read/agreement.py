"""Whether a statement that is written again means the same to DuckDB.

A statement with calls is read by another parser and written again, and that parser reads some of
DuckDB's SQL as something else. So DuckDB's own trees of both texts are compared before the first
call. They may differ in what DuckDB takes for the same: names of functions and types with one
meaning, and a few forms below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from threading import Lock
from typing import Any

import duckdb
from sqlglot import Token, TokenType

from relquery.errors import UnsupportedQueryError
from relquery.sql.read.tokens import UnbalancedError, closing, tokenize

Tree = Any
_LEFT_OUT = (
    *("query_location", "query_location_length", "qualified_name", "is_operator"),
    *("syntax_type", "is_implicit"),  # of lambdas, and of joins
)
_BEGIN = (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES)
_OF_IF = 3  # arguments
_BESIDE = 8
"""Beginnings of a query that are tried, in a statement that is more than one."""
_WORDS = {
    "current_date": "current_date",
    "current_catalog": "current_catalog",
    "current_time": "get_current_time",
    "current_timestamp": "get_current_timestamp",
    "localtime": "current_localtime",
    "localtimestamp": "current_localtimestamp",
    "session_user": "session_user",
    "current_user": "current_user",
}
"""Words that are calls without parentheses."""
_NAMES = {
    "datediff": "date_diff",
    "datepart": "date_part",
    "datesub": "date_sub",
    "datetrunc": "date_trunc",
    "date_add": "+",
    "today": "current_date",
    "json_extract_string": "->>",
    "json_extract_path_text": "->>",
    "json_extract_path": "json_extract",
    "array_append": "list_append",
    "array_prepend": "list_prepend",
    "list_has_any": "&&",
}
"""Functions with two names, of which DuckDB's catalogue does not say so."""
_PARTS = {"dow": "dayofweek", "weekday": "dayofweek", "doy": "dayofyear"}
_OF_DATES = ("date_trunc", "date_part", "date_diff", "date_sub")
_BARE = re.compile(r"""\."(\w+)\"""")
"""A key in quotes that needs none."""
_INTERVAL = re.compile(
    r"\s*(-?\d+)\s+(year|month|week|day|hour|minute|second|millisecond|microsecond)s?\s*",
    re.IGNORECASE,
)
_lock = Lock()


def agree(sql: str, written: str) -> bool:
    """Whether a text and how it is written again are the same to DuckDB, as far as it can tell.

    Raises UnsupportedQueryError for columns by number.
    """
    one = _tree(sql)
    if one is not None and "#" in sql and _has_position(one):
        raise UnsupportedQueryError(
            "A query with LLM calls does not know columns by number (#1). Write their names."
        )
    other = _tree(written)
    return one is None or other is None or one == other


def _has_position(node: Tree) -> bool:
    if isinstance(node, dict):
        return node.get("type") == "POSITIONAL_REFERENCE" or _has_position(list(node.values()))
    return isinstance(node, list) and any(map(_has_position, node))


def _tree(sql: str) -> Tree | None:
    """DuckDB's tree of a query, or of the one in a statement; None if there is none."""
    for text in _queries(sql):
        with _lock:
            query = "SELECT json_serialize_sql($1::VARCHAR)"
            ((found,),) = _duckdb().execute(query, [text]).fetchall()
        said = json.loads(found)
        if not said["error"]:
            return _same(said["statements"])
    return None


def _queries(sql: str) -> Iterator[str]:
    yield sql
    yield f"SELECT {sql}"  # what a macro is
    tokens = tokenize(sql)
    words = [token.text.upper() for token in tokens[-3:]]
    if words[-1:] == ["DATA"]:  # WITH NO DATA, of CREATE TABLE
        tokens = tokens[: -3 if words[-2:-1] == ["NO"] else -2]
        sql = sql[: tokens[-1].end + 1]
    begin = [at for at, token in enumerate(tokens) if token.token_type in _BEGIN]
    for at in begin[:_BESIDE]:
        yield sql[tokens[at].start :]
        if at and tokens[at - 1].token_type is TokenType.L_PAREN:
            yield sql[tokens[at].start : _end(tokens, at - 1)]


def _end(tokens: list[Token], opening: int) -> int:
    try:
        return int(tokens[closing(tokens, opening)].start)
    except UnbalancedError:
        return int(tokens[-1].end) + 1


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@cache
def _functions() -> Mapping[str, str]:
    """What DuckDB calls a function that has several names."""
    rows = _duckdb().execute(
        "SELECT DISTINCT lower(function_name), lower(alias_of) FROM duckdb_functions() "
        "WHERE alias_of IS NOT NULL"
    )
    return dict(rows.fetchall())


@cache
def _types() -> Mapping[str, str]:
    rows = _duckdb().execute("SELECT upper(type_name), logical_type FROM duckdb_types()")
    return dict(rows.fetchall())


def _same(node: Tree) -> Tree:
    """A tree without what makes no difference."""
    if isinstance(node, list):
        return [_same(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {name: _same(value) for name, value in node.items() if name not in _LEFT_OUT}
    kind = "FUNCTION" if found.get("class") == "WINDOW" else found.get("type")
    rule = _RULES.get(str(kind))
    return found if rule is None else rule(found)


def _type(found: Tree) -> Tree:
    name = found["type_name"].upper()
    name = _types().get(name, name)
    found["type_name"] = name
    if name == "VARCHAR":  # its length means nothing
        found["children"] = []
    if name == "DECIMAL" and not found["children"]:
        found["children"] = [_constant("INTEGER", digits) for digits in ("18", "3")]
    return found


def _column(found: Tree) -> Tree:
    """`current_date` is `current_date()`."""
    names = [name.lower() for name in found["column_names"]]
    return {"call": _WORDS[names[0]]} if len(names) == 1 and names[0] in _WORDS else found


def _join(found: Tree) -> Tree:
    """`a, b` is `a JOIN b ON true`."""
    crossing = {"ref_type": "REGULAR", "condition": _constant("BOOLEAN", "true")}
    return found | crossing if found["ref_type"] == "CROSS" else found


def _is_not_null(found: Tree) -> Tree:
    return _not(found | {"type": "OPERATOR_IS_NULL"})


def _is_distinct(found: Tree) -> Tree:
    return _not(found | {"type": "COMPARE_NOT_DISTINCT_FROM"})


def _cast(found: Tree) -> Tree:
    """`INTERVAL '2 days'` is `INTERVAL '2' DAY`."""
    text = _text(found["child"]) if found["type_expr"].get("type_name") == "INTERVAL" else None
    match = _INTERVAL.fullmatch(text or "")
    return found if match is None else {"interval": match[1], "unit": match[2].lower()}


def _array(found: Tree) -> Tree:
    """`ARRAY[1]` is `[1]`."""
    return {"list": found["children"]}


def _lambda(found: Tree) -> Tree:
    """`j -> 'a'` is `j -> '$.a'`."""
    return found | {"expr": _path(found["expr"])}


def _numeral(found: Tree) -> Tree:
    """`1_000` is `1000`."""
    literal = found["literal"]
    if literal.get("kind") not in ("INTEGER", "NUMERIC"):
        return found
    return found | {"literal": literal | {"text": literal["text"].replace("_", "")}}


def _function(found: Tree) -> Tree:
    name = found["function_name"]
    name = found["function_name"] = _functions().get(name, _NAMES.get(name, name))
    given = [each["expression"] for each in found["arguments"]]
    if not given and name in _WORDS.values():
        return {"call": name}
    rule = _CALLS.get(name)
    if rule is not None:
        return rule(found, given)
    if name.startswith("to_") and len(given) == 1 and (text := _number(given[0])) is not None:
        return {"interval": text, "unit": name.removeprefix("to_").removesuffix("s")}
    return found


def _list(found: Tree, given: list[Tree]) -> Tree:
    del found
    return {"list": given}


def _plus(found: Tree, given: list[Tree]) -> Tree:
    """`+a` is `a`."""
    return given[0] | {"alias": found["alias"]} if len(given) == 1 else found


def _joined(found: Tree, given: list[Tree]) -> Tree:
    """`string_agg(a)` is `string_agg(a, ',')`."""
    return found | _arguments([*given, *[_constant("STRING", ",")] * (len(given) == 1)])


def _if(found: Tree, given: list[Tree]) -> Tree:
    if len(given) != _OF_IF:
        return found
    condition, then, otherwise = given
    checks = [{"when_expr": condition, "then_expr": then}]
    new = {"class": "CASE", "type": "CASE_EXPR", "alias": found["alias"]}
    return new | {"case_checks": checks, "else_expr": otherwise}


def _coalesced(found: Tree, given: list[Tree]) -> Tree:
    new = {"class": "OPERATOR", "type": "OPERATOR_COALESCE", "alias": found["alias"]}
    return new | {"children": given}


def _from_zero(found: Tree, given: list[Tree]) -> Tree:
    """`range(0, 9)` is `range(9)`."""
    is_from_zero = len(given) == 2 and _text(given[0]) == "0"
    return found | _arguments(given[1:]) if is_from_zero else found


def _extracted(found: Tree, given: list[Tree]) -> Tree:
    """`json_extract(j, p)` is `j -> p`."""
    if len(given) != 2:
        return found
    new = {"class": "LAMBDA", "type": "LAMBDA", "alias": found["alias"]}
    return new | {"lhs": given[0], "expr": _path(given[1])}


def _extracted_text(found: Tree, given: list[Tree]) -> Tree:
    return found | _arguments([given[0], *map(_path, given[1:])]) if given else found


def _of_date(found: Tree, given: list[Tree]) -> Tree:
    """`date_trunc('MONTH', d)` is `date_trunc('month', d)`."""
    text = _text(given[0]) if given else None
    if text is None:
        return found
    return found | _arguments([{"part": _PARTS.get(text.lower(), text.lower())}, *given[1:]])


def _any_boolean(found: Tree, given: list[Tree]) -> Tree:
    """`bool_or(a::BOOLEAN)` is `bool_or(a)`."""
    match given:
        case [{"type": "OPERATOR_CAST", "type_expr": {"type_name": "BOOLEAN"}, "child": child}]:
            return found | _arguments([child])
    return found


def _quantile(found: Tree, given: list[Tree]) -> Tree:
    """`percentile_cont(p) WITHIN GROUP (ORDER BY a)` is `quantile_cont(a, p ORDER BY a)`."""
    match given, found.get("order_bys"):
        case [_], {"orders": [{"expression": value}]}:
            return found | _arguments([value, *given])
    return found


def _number(count: Tree) -> str | None:
    """The whole number of which casts and `trunc` make the one that makes an interval."""
    while isinstance(count, dict):
        match count:
            case {"type": "OPERATOR_CAST", "child": child}:
                count = child
            case {"function_name": "trunc", "arguments": [{"expression": child}]}:
                count = child
            case _:
                text = _text(count)
                return text if text is not None and re.fullmatch(r"-?\d+(\.\d+)?", text) else None
    return None


def _path(path: Tree) -> Tree:
    text = _text(path)
    if text is None or not text or '"' in text.lstrip("$"):
        return path if text is None else _constant("STRING", _BARE.sub(r".\1", text))
    if path["literal"]["kind"] == "INTEGER":
        return _constant("STRING", f"$[{text}]")
    if text[0] in "$/":
        return path
    return _constant("STRING", f"$.{text}" if re.fullmatch(r"\w+", text) else f'$."{text}"')


def _text(node: Tree) -> str | None:
    """What a constant says."""
    is_constant = isinstance(node, dict) and node.get("type") == "VALUE_CONSTANT"
    return str(node["literal"]["text"]) if is_constant and "text" in node["literal"] else None


def _arguments(given: list[Tree]) -> Tree:
    return {"arguments": [{"name": "", "expression": each} for each in given]}


def _constant(kind: str, text: str) -> Tree:
    literal = {"kind": kind, "text": text}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": literal}


def _not(negated: Tree) -> Tree:
    kind = {"class": "OPERATOR", "type": "OPERATOR_NOT", "alias": negated["alias"]}
    return kind | {"children": [negated | {"alias": ""}]}


_CALLS: Mapping[str, Callable[[Tree, list[Tree]], Tree]] = {
    "list_value": _list,
    "+": _plus,
    "string_agg": _joined,
    "if": _if,
    "nvl": _coalesced,
    "ifnull": _coalesced,
    "range": _from_zero,
    "generate_series": _from_zero,
    "json_extract": _extracted,
    "->>": _extracted_text,
    "json_keys": _extracted_text,
    "bool_or": _any_boolean,
    "bool_and": _any_boolean,
    "quantile_cont": _quantile,
    "quantile_disc": _quantile,
    **dict.fromkeys(_OF_DATES, _of_date),
}
_RULES: Mapping[str, Callable[[Tree], Tree]] = {
    "FUNCTION": _function,
    "TYPE": _type,
    "COLUMN_REF": _column,
    "JOIN": _join,
    "OPERATOR_IS_NOT_NULL": _is_not_null,
    "COMPARE_DISTINCT_FROM": _is_distinct,
    "OPERATOR_CAST": _cast,
    "LAMBDA": _lambda,
    "ARRAY_CONSTRUCTOR": _array,
    "VALUE_CONSTANT": _numeral,
}
