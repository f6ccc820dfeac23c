"""All names that relquery adds to queries: tables, columns, macros. One prefix marks them, so they
can be told from the user's names. They never show up in a message."""

from __future__ import annotations

import re
from collections.abc import Callable

PREFIX = "_rq_"

FUNCTIONS = frozenset(
    {
        "llm",
        "ai_complete",
        "ai_filter",
        "ai_classify",
        "ai_score",
        "ai_extract",
        "ai_agg",
        "ai_summarize_agg",
        "ai_rank",
        "ai_sentiment",
        "ai_translate",
        "ai_summarize",
        "ai_redact",
    }
)
"""Functions that call a model, as users write them, in lower case."""
PASSAGES, SEARCH, DEDUP = "passages", "ai_search", "ai_dedup"
SIMILARITY, EMBED, NEAREST = "ai_similarity", "ai_embed", "ai_nearest"
DUPLICATES, COUNT_TOKENS = "ai_duplicates", "ai_count_tokens"
"""Functions that call no model."""
OWNER = f"{PREFIX}owner"
"""A macro that says which of our connections their macros serve."""
USERS_MACRO = f"NOT internal AND NOT contains(coalesce(macro_definition, ''), '{PREFIX}')"
"""A condition on duckdb_functions(): whether a macro is the user's, not one of ours."""
USAGES = {
    PASSAGES: "passages('table', question [, k [, 'column']])",
    SEARCH: "AI_SEARCH('table', question [, k [, 'column']])",
    DEDUP: "AI_DEDUP('table', text [, threshold [, 'column']])",
    SIMILARITY: "AI_SIMILARITY(text, text)",
    EMBED: "AI_EMBED(text)",
    NEAREST: "AI_NEAREST(texts, others [, k])",
    DUPLICATES: "AI_DUPLICATES(texts [, threshold])",
    COUNT_TOKENS: "AI_COUNT_TOKENS(text, ...)",
}
"""How functions that call no model are written."""
AGGREGATES = frozenset({"ai_agg", "ai_summarize_agg"})
"""Those that ask about a group of rows."""

TEXT_STAND_IN = f"{PREFIX}text"
"""A column of answers, before the number of its call."""

ROW, ROWS = f"{PREFIX}row", f"{PREFIX}rows"
"""The number of a row, and the rows of a stage."""
PLACE, ASKED = f"{PREFIX}place", f"{PREFIX}asked"
"""A row's place among those that pass, and whether a call has been asked for it."""
BASE, GROUPS = f"{PREFIX}base", f"{PREFIX}groups"
"""Subqueries: the base rows, and one row per group."""
OUTER, LATERAL = f"{PREFIX}outer", f"{PREFIX}lateral"
"""The outer rows that a correlated subquery depends on, and its rows for one of them."""
NOTHING, GROUP = f"{PREFIX}nothing", f"{PREFIX}group"
"""Columns of a subquery that nothing reads."""
MARK = f"{PREFIX}mark"
"""A column between those of two stars."""
WRITTEN = f"{PREFIX}written"
NEW = f"{PREFIX}new"
"""The rows that an UPDATE or DELETE applies."""
VALUE, FAILED = f"{PREFIX}value", f"{PREFIX}failed"
"""Columns of a check: the answer as read, and whether it failed."""
TRIMMED, DECIMAL, FINITE = f"{PREFIX}trimmed", f"{PREFIX}decimal", f"{PREFIX}finite"
"""Macros that read an answer as a number."""
_FENCED = r"^\s*```(?:[\w+-]*\n)?([^`]*)```\s*$"
MACROS = {
    TRIMMED: (
        rf"trim(coalesce(nullif(regexp_extract(answer, '{_FENCED}', 1), ''), answer), "
        r"e' \t\n\r\f\x0b')"
    ),
    DECIMAL: (
        f"CASE WHEN regexp_full_match({TRIMMED}(answer), "
        r"'[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?') "
        f"THEN {TRIMMED}(answer) END"
    ),
    FINITE: "CASE WHEN isfinite(answer) THEN answer END",
}
"""Their bodies, by name."""

Numbered = Callable[[int], str]
"""Names that differ by a number."""
answer: Numbered = f"{TEXT_STAND_IN}_{{}}".format
"""The column of a call's answers."""
column: Numbered = f"{PREFIX}column_{{}}".format
"""A base column, which holds a column or expression over the user's tables."""
new: Numbered = f"{NEW}_{{}}".format
"""A column of what an UPDATE or DELETE applies."""
group: Numbered = f"{PREFIX}group_{{}}".format
"""A column of a group."""
outer: Numbered = f"{OUTER}_{{}}".format
"""A column that is read of the pairs of a correlated subquery or of a join."""
own: Numbered = f"{PREFIX}own_{{}}".format
"""A column of the rows of a correlated subquery."""
inner: Numbered = f"{PREFIX}inner_{{}}".format
"""A column of what is asked about such pairs."""
entry: Numbered = f"{PREFIX}entry_{{}}".format
"""A WITH entry for a subquery that is read at several places."""
field: Numbered = f"{PREFIX}{{}}".format
"""A field of a call, as text."""


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(value: object) -> str:
    """A text as an SQL literal."""
    return "'" + str(value).replace("'", "''") + "'"


def call_of(name: str) -> int | None:
    """The call whose answers a column holds, by its name; None for other names."""
    before, _, number = name.lower().rpartition("_")
    return int(number) if before == TEXT_STAND_IN and number.isdigit() else None


IN_MESSAGES = {
    re.compile(  # what stands for a call, as DuckDB writes it out
        r"CASE\s+WHEN \(\(\"row\"\(.*? IS NOT DISTINCT FROM .*?\)\) THEN \(CAST\(\S+ AS \w+\)\) "
        r"ELSE CAST\(NULL AS \w+\) END",
        re.DOTALL,
    ): "LLM(...)",
    re.compile(r"<class '(?:\w+\.)*(\w+)'>"): r"\1",
    re.compile(rf" when casting from source column {PREFIX}column_\d+"): "",
    re.compile(rf"{TEXT_STAND_IN}_\d+"): "LLM(...)",
    re.compile(rf"{PREFIX}(\w+)_[0-9a-f]{{32}}"): r"\1",
    re.compile(rf"{PREFIX}entry_\d+\."): "",
    re.compile(rf"{PREFIX}(?:column|outer|own|inner)_\d+"): "a column of it",
    re.compile(
        rf"{PREFIX}(?:table_\d+|view_\w+|frame_[0-9a-f]{{32}}|entry_\d+|new(?:_\d+)?|rows|base|groups|outer|lateral)"
    ): "the rows",
}
"""Replacements for our names in messages, applied in this order."""
