"""A query that returns no rows asks nothing: tools learn the columns of a query with LIMIT 0.

SELECT g, count(*) FROM (SELECT LLM('...', text) AS g FROM t) GROUP BY g LIMIT 0
=> SELECT g, count(*) FROM (SELECT LLM('...', text) AS g FROM t WHERE false) WHERE false
   GROUP BY g LIMIT 0
"""

from __future__ import annotations

from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.reads import asks
from relquery.sql.parser import build
from relquery.sql.parser.tree import Constant, Query, Select

_FALSE = build.boolean(False).key


def limit_zero(tree: Query, lookup: Lookup) -> Query | None:
    """The rule of this module; see `rules`."""
    del lookup
    for query in tree.find_all(Query):
        count = None if query.limit is None else query.limit.limit
        if isinstance(count, Constant) and count.text == "0" and asks(query):
            full = [one for one in query.find_all(Select) if not _is_empty(one)]
            for select in full:
                select.where = build.boolean(False)
            if full:
                return tree
    return None


def _is_empty(select: Select) -> bool:
    return select.where is not None and select.where.key == _FALSE
