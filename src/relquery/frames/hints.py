"""Hints for names that a frame lacks, as pandas, polars and SQL have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from relquery.errors import did_you_mean, unknown

ROWS = (
    "A frame has no rows before it runs. Write f.collect() for all of them, len(f.collect()), or "
    "for row in f.result()."
)
_SQL = "con.sql('SELECT ... FROM (' + f.sql() + ')')"
_WRITE = {
    ("to_pandas", "toPandas", "pandas", "to_df", "toDF"): "f.df()",
    ("to_polars", "polars"): "f.pl()",
    ("lazy", "to_lazy", "scan"): "f.pl(lazy=True)",
    ("to_arrow", "toArrow", "to_pyarrow", "fetch_arrow_table"): "f.arrow()",
    ("to_dict", "to_dicts", "to_pylist", "rows"): "f.pl().to_dicts()",
    ("fetchall", "fetchone", "fetchmany", "iter_rows", "itertuples", "iterrows", "values"): (
        "f.result().fetchall()"
    ),
    ("compute", "execute", "run", "fetch", "persist", "cache", "to_table"): "f.collect()",
    ("show", "print", "display", "describe", "info"): "print(f.collect())",
    ("count", "shape", "height", "size"): "len(f.collect())",
    ("to_csv", "write_csv"): "f.df().to_csv(path)",
    ("to_parquet", "write_parquet"): "f.df().to_parquet(path)",
    ("dtypes", "schema", "collect_schema"): "f.pl(lazy=True).collect_schema()",
    ("width",): "len(f.columns)",
    ("where", "query", "loc", "sem_where"): "f.filter('year > 2000')",
    ("sort_values", "order_by", "orderBy", "order", "arrange"): ("f.sort('year', descending=True)"),
    ("assign", "with_column", "withColumn", "mutate", "insert"): (
        "f.with_columns(total='price * 2')"
    ),
    ("drop", "project"): "f.select('title', 'year'), the columns that stay",
    ("iloc", "slice", "tail", "take", "top_k", "sample"): "f.limit(10, offset=20)",
    ("groupby", "group_by", "agg", "aggregate"): "f.sem_agg('Sum up {text}', by='topic')",
    ("sem_summarize", "sem_sum", "sem_reduce", "sem_summarise"): "f.sem_agg('Sum up {text}')",
    ("join", "merge"): "f.sem_join(other, '{text:left} is about {name:right}')",
    ("unique", "drop_duplicates", "distinct"): "f.sem_dedup('text', threshold=0.9)",
    ("sem_rank", "sem_sort", "sem_order_by"): "f.sem_topk('Which {text} is best?', k=10)",
    ("apply", "map", "pipe"): "f.sem_map('Shorten {text}', output='short')",
    ("sem_label", "sem_class"): "f.sem_classify('What is {text}?', ['a', 'b'], 'kind')",
    ("sem_index", "load_sem_index"): (
        "f.sem_search('text', 'query', k=5) at once: it needs no index"
    ),
}
_INSTEAD = {name: write for names, write in _WRITE.items() for name in names}
_ALSO_SQL = {"groupby", "group_by", "agg", "aggregate", "join", "merge", "unique", "distinct"}


def no_such(name: str, columns: Sequence[str], known: Iterable[str]) -> str:
    """The message about an attribute that a frame does not have. known: those that it has."""
    said = f"A frame has no attribute {name!r}."
    if name in columns:
        return f"{said} It is a column: f.select({name!r}), or {{{name}}} in an instruction."
    if name not in _INSTEAD:
        return said + did_you_mean(name, known)
    more = f", or what needs no model in SQL: {_SQL}" if name in _ALSO_SQL else ""
    return f"{said} Write {_INSTEAD[name]}{more}."


def no_item(key: object, columns: Sequence[str]) -> str:
    """The message about f[key]."""
    names = [key] if isinstance(key, str) else key
    if isinstance(names, list) and names and all(name in columns for name in names):
        return f"A frame has no f[...]. Write f.select({', '.join(map(repr, names))})."
    if isinstance(key, int):  # Python also asks for item 0 when a frame is iterated
        return ROWS
    return (
        "A frame has no f[...]. Write f.select('title') for columns, f.filter('year > 2000') for "
        "rows, and f.limit(10, offset=20) for a slice."
    )


def no_dict(names: object, others: Mapping[str, object]) -> str:
    """The message about rename without a dict. others: what it was given by name."""
    pairs = {old: new for old, new in others.items() if isinstance(new, str)}
    if isinstance(renamed := others.get("columns"), Mapping):  # as pandas has it
        pairs = dict(renamed)
    given = ", ".join(f"{name}=..." for name in others) or repr(names)
    return f"rename was given {given}; it takes a dict: f.rename({pairs or {'old': 'new'}!r})."


def no_name(value: object) -> str:
    """The message about an expression of with_columns that has no name."""
    match = re.fullmatch(r"(.+?)\s+AS\s+(\w+)\s*", str(value), re.IGNORECASE | re.DOTALL)
    write = f"{match[2]}={match[1]!r}" if match else "total='price * 2'"
    return (
        f"with_columns was given {value!r} without a name; it takes expressions in SQL by name: "
        f"f.with_columns({write})."
    )


def no_order(others: Mapping[str, object]) -> str:
    """The message about keywords that sort does not have."""
    name, value = next(iter(others.items()))
    if name == "ascending" and isinstance(value, bool):
        return f"sort has no ascending. Write descending={not value}."
    if name == "by":  # as pandas has it
        return f"sort takes columns without a keyword: f.sort({value!r})."
    return unknown("keyword", name, ["descending"], of="sort")
