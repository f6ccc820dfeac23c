"""Modules and other names of LOTUS's package that are refused when a program asks for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import NoReturn

from relquery.errors import ConfigError

PACKAGE = "relquery.frames.lotus"
_PAGES = "Fetch the pages first, and use a DataFrame of them."
_LAZY = "A frame of relquery is lazy: rq.frame(df, con).sem_filter(...).collect()."
NAMES = {
    "LazyFrame": _LAZY,
    "Optimizer": _LAZY,
    "Corpus": "Use a table, or passages(...) in SQL.",
    "web_search": _PAGES,
    "web_extract": _PAGES,
    "WebSearchCorpus": _PAGES,
    "llm_as_judge": "Use df.sem_map, or rq.frame(df, con).sem_score for a number.",
    "pairwise_judge": "Use df.sem_map with both columns in the instruction.",
    "cache": "Answers are kept anyway; for a file, LM(model=rq.connect(..., ledger='answers.db')).",
    "data_connectors": "Read with DuckDB or pandas: con.sql(...).df(), pd.read_sql(...).",
    "nl_expression": "Columns in braces are read by the verbs themselves.",
    "templates": "EXPLAIN and Result.write_html show what is sent.",
    "utils": "Cluster with another library, such as scikit-learn.",
    "dtype_extensions": "Images are not supported.",
    "evals": "Use df.sem_map, or rq.frame(df, con).sem_score for a number.",
    "ast": _LAZY,
    "corpus": "Use a table, or passages(...) in SQL.",
    "sem_ops": "Call the verbs on a DataFrame: df.sem_filter(...).",
    "pricing": "rq.frame(...).explain() tells calls and tokens.",
    "file_extractors": "Read the files into a DataFrame first.",
    "agentic": _LAZY,
    "tools": "Call tools in Python, and use a DataFrame of what they give.",
    "long_context_strategy": "Import LongContextStrategy from relquery.frames.lotus.types.",
}
"""What to do instead of each."""
_OF_TYPES = {
    "LMOutput": "rq.connect(...).prompt(...) gives the text of an answer.",
    "LotusException": "Errors of relquery are in relquery.errors.",
    "LotusUsageLimitException": "There are no usage limits. Errors are in relquery.errors.",
    "RMOutput": "AI_NEAREST in SQL gives texts with their scores.",
    "RerankerOutput": "n_rerank ranks with the language model.",
    **{
        f"Semantic{verb}Output": "The verbs give DataFrames."
        for verb in (
            "Map", "MapPostprocess", "Extract", "ExtractPostprocess", "Filter",
            "FilterPostprocess", "Agg", "Join", "TopK",
        )
    },
}  # fmt: skip


def refuse(name: str) -> NoReturn:
    """The `__getattr__` of the package. Raises ConfigError, or AttributeError for other names."""
    if name.startswith("sem_") and name not in NAMES:
        raise ConfigError(f"{name} of the module is not supported. Write df.{name}(...).")
    _refuse(name, NAMES, PACKAGE)


def refuse_type(name: str) -> NoReturn:
    """The `__getattr__` of `types`. Raises ConfigError, or AttributeError for other names."""
    _refuse(name, _OF_TYPES, f"{PACKAGE}.types")


def _refuse(name: str, remedies: dict[str, str], module: str) -> NoReturn:
    if name in remedies:
        raise ConfigError(f"{name} is not supported. {remedies[name]}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


class _Absent(MetaPathFinder):
    """Refuses imports of modules by name, where Python would say that there are none."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """None for all other modules. Raises ConfigError."""
        package, _, module = name.rpartition(".")
        if package == PACKAGE and module in NAMES:
            refuse(module)


def refuse_imports() -> None:
    """Refuse imports of LOTUS's other modules. A second time changes nothing."""
    if not any(isinstance(finder, _Absent) for finder in sys.meta_path):
        sys.meta_path.append(_Absent())
