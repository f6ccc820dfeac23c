"""What to write in place of functions of Snowflake, BigQuery and Databricks, in the query's own
arguments.

    ai_query('endpoint', 'Summarize: ' || review)    AI_COMPLETE('Summarize:', review)
    AI.IF(('Is it late? ', message))                 AI_FILTER('Is it late?', message)
    ML.GENERATE_TEXT(MODEL m, TABLE t)               (SELECT *, AI_COMPLETE(prompt) AS ... FROM t)

Statements are read by their tokens, as DuckDB's parser does not take the forms of other systems.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from relquery.errors import RelqueryError
from relquery.sql import names as ours
from relquery.sql.binder.other_calls import (
    NOT_HERE,
    OF_CORTEX,
    OF_DATABRICKS,
    WRITERS,
    Call,
    as_text,
    name_of,
    texts_in,
)
from relquery.sql.host.database import Database
from relquery.sql.parser.tokens import Token, between_commas, closing, tokenize

_QUOTED = re.compile(r"`([^`]*)`")


def advice(sql: str, database: Database) -> str | None:
    """What to write in place of a text with functions of other systems; None if it has none."""
    plain = _QUOTED.sub(lambda found: name_of(found[1]), sql.encode(errors="replace").decode())
    tokens, defined = tokenize(plain), set[str]()
    with suppress(RelqueryError):
        defined = database.macros()
    replaced = _rewritten(plain, tokens, defined)
    if replaced is None:
        return None
    name, text = replaced
    if text is None:
        return f"There is no function {name} here. {NOT_HERE[name.lower()]}"
    return f"{name} is written in another way here. Write: {text.strip().rstrip(';')}"


def _rewritten(
    sql: str, tokens: Sequence[Token], defined: set[str]
) -> tuple[str, str | None] | None:
    """(the first call that is another system's, the text with ours). None if there is none."""
    first, parts, end, at = "", list[str](), 0, 0
    while at < len(tokens):
        path, opening, is_cortex = _path(tokens, at)
        if opening is None or path in defined:
            at += 1
            continue
        close = closing(tokens, opening)
        if path in NOT_HERE:
            return path.upper(), None
        inside = _rewritten_inside(sql, tokens[opening + 1 : close], defined)
        text = _written(path, inside)
        changed = is_cortex or inside != texts_in(sql, tokens[opening + 1 : close])
        if text is None and changed:
            text = f"{path.upper()}({', '.join(inside)})"
        after = close + 1
        if text is not None:
            first = first or path.upper()
            has_part = after < len(tokens) and tokens[after].text == "."
            if has_part and path.startswith(("ai.", "ml.")):
                after += 2  # the value has no object around it
            parts += [sql[end : tokens[at].start], text]
            end = tokens[after - 1].end
        at = after
    return (first, "".join((*parts, sql[end:]))) if first else None


def _path(tokens: Sequence[Token], at: int) -> tuple[str, int | None, bool]:
    """(the name with dots at a token, in lower case; the place of the parenthesis behind it, None
    where no function that is known here is called; whether it was in Snowflake's schema)."""
    names = list[str]()
    if at and tokens[at - 1].text == ".":
        return "", None, False
    while at + 1 < len(tokens) and tokens[at].is_name:
        names.append(tokens[at].name.lower())
        if tokens[at + 1].text == "(":
            path = ".".join(names).removeprefix("snowflake.cortex.")
            is_cortex = len(names) == 3 and names[0] == "snowflake"
            is_known = path in WRITERS or path in NOT_HERE or path in ours.FUNCTIONS
            if is_cortex or (is_known and path not in OF_CORTEX):
                name = f"cortex.{path}" if path in OF_CORTEX else path
                return name, at + 1, is_cortex
            break
        if tokens[at + 1].text != ".":
            break
        at += 2
    return "", None, False


def _rewritten_inside(sql: str, tokens: Sequence[Token], defined: set[str]) -> list[str]:
    """The arguments of a call, with what is another system's in them in our form."""
    found = []
    for part in between_commas(tokens):
        start, end = part[0].start, part[-1].end
        inner = _rewritten(sql[start:end], tokenize(sql[start:end]), defined)
        found.append(_literal(inner[1] if inner and inner[1] else sql[start:end]))
    return found


def _literal(text: str) -> str:
    """Lists and structs in our form: ARRAY('a', 'b'), OBJECT_CONSTRUCT('a', 1)."""
    tokens = tokenize(text)
    name = tokens[0].word if len(tokens) > 2 and tokens[1].text in "([" else ""
    if name not in ("ARRAY", "ARRAY_CONSTRUCT", "OBJECT_CONSTRUCT", "NAMED_STRUCT"):
        return text
    items = texts_in(text, tokens[2 : closing(tokens, 1)])
    if name.startswith("ARRAY"):
        return f"[{', '.join(map(_literal, items))}]"
    pairs = zip(items[::2], map(_literal, items[1::2]), strict=False)
    return f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}"


def _written(path: str, arguments: Sequence[str]) -> str | None:
    """A call in our form; None if its form is ours."""
    texts, named = list[str](), dict[str, str]()
    for argument in arguments:
        tokens = tokenize(argument)
        if len(tokens) > 2 and tokens[1].text in ("=>", ":="):
            named[tokens[0].name.lower()] = _literal(argument[tokens[1].end :].strip())
        else:
            texts.append(argument)
    writer = WRITERS.get(path)
    if writer is None:
        return None
    if not path.startswith(("cortex.", "ai_")) or path in OF_DATABRICKS:  # there, "a" is a text
        texts = [as_text(one) for one in texts]
    return writer(Call(path, tuple(texts), named))
