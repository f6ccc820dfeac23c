"""The words that the shell knows: the functions of relquery, and keywords."""

from __future__ import annotations

FUNCTIONS = {
    "LLM": "'prompt', column, ...",
    "AI_COMPLETE": "'prompt', column, ...",
    "AI_FILTER": "'question', column, ...",
    "AI_CLASSIFY": "column, ['label', ...]",
    "AI_EXTRACT": "column, 'name TYPE, ...'",
    "AI_SCORE": "'question', column, ...",
    "AI_RANK": "'criterion', column, ...",
    "AI_AGG": "'question', column",
    "AI_SUMMARIZE_AGG": "column",
    "AI_SENTIMENT": "text, ['aspect', ...]",
    "AI_TRANSLATE": "text, 'from', 'to'",
    "AI_SUMMARIZE": "text, words",
    "AI_REDACT": "text, ['NAME', ...]",
    "AI_COUNT_TOKENS": "text",
    "passages": "'table', question, k",
    "AI_SEARCH": "'table', question, k",
    "AI_DEDUP": "'table', text, threshold",
    "AI_SIMILARITY": "text, text",
    "AI_EMBED": "text",
    "AI_NEAREST": "texts, others, k",
    "AI_DUPLICATES": "texts, threshold",
    "BAG": "list",
    "MODULE": "column",
}
"""The functions of relquery, and the arguments of each."""

SEARCHING = frozenset({"passages", "ai_search", "ai_dedup"})
"""Functions whose first argument names a table in quotes."""

BEFORE_A_TABLE = frozenset({"DESCRIBE", "FROM", "INTO", "JOIN", "SUMMARIZE", "TABLE", "UPDATE"})
"""Keywords that a table follows."""

KEYWORDS = (
    "ALL", "ALTER", "ANALYZE", "AND", "ANTI", "AS", "ASC", "ASOF", "ATTACH", "BEGIN", "BETWEEN",
    "BY", "CASE", "CAST", "CHECKPOINT", "COLUMNS", "COMMIT", "COPY", "CREATE", "CROSS", "DELETE",
    "DESC", "DESCRIBE", "DETACH", "DISTINCT", "DROP", "ELSE", "END", "EXCEPT", "EXCLUDE", "EXECUTE",
    "EXISTS", "EXPLAIN", "FALSE", "FILTER", "FIRST", "FROM", "FULL", "GROUP", "HAVING", "ILIKE",
    "IN", "INNER", "INSERT", "INTERSECT", "INTO", "IS", "JOIN", "LAST", "LEFT", "LIKE", "LIMIT",
    "MACRO", "NATURAL", "NOT", "NULL", "NULLS", "OFFSET", "ON", "OR", "ORDER", "OUTER", "OVER",
    "PARTITION", "PIVOT", "PREPARE", "QUALIFY", "REPLACE", "RETURNING", "RIGHT", "ROLLBACK",
    "SELECT", "SEMI", "SET", "SHOW", "SUMMARIZE", "TABLE", "TABLES", "TEMP", "THEN", "TO", "TRUE",
    "TRY_CAST", "UNION", "UNPIVOT", "UPDATE", "USING", "VALUES", "VIEW", "WHEN", "WHERE", "WINDOW",
    "WITH",
)  # fmt: skip
