"""Names that LOTUS has and relquery has not: each imports, and is refused when it is used."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from relquery.errors import ConfigError, unknown

_CASCADE = (
    "Only filters have a cascade, so leave it out: every row is asked. df.sem_filter(..., "
    "cascade_args=CascadeArgs(...)) asks a helper_lm first, and rq.frame(...).sem_join(..., "
    "blocking=0.5) asks only about near pairs."
)
_REMEDIES = {
    "cascade_args": _CASCADE,
    "cascade_threshold": _CASCADE,
    "helper_examples": _CASCADE,
    "examples": "Write the examples into the instruction.",
    "strategy": "Ask for reasons in the instruction of a sem_map, and filter by what it says.",
    "prompt_strategy": "Write what it adds into the instruction.",
    "demonstration_config": "Write the examples into the instruction.",
    "return_explanations": "Ask for reasons with a sem_map.",
    "return_raw_outputs": "An answer is stored as the model wrote it.",
    "output_tokens": "A filter is answered Yes or No.",
    "postprocessor": "Change the column with pandas.",
    "response_format": "Give rq.frame(...).sem_map types: output='answer VARCHAR, stars INTEGER'.",
    "use_operator_cache": "Answers are kept anyway. Leave it out.",
    "max_completion_tokens": "Write max_tokens.",
    "max_ctx_len": "The model's own context counts. Leave it out.",
    "reasoning_effort": "relquery does not send it. Leave it out, and set max_tokens so that the "
    "model's reasoning fits.",
    "verbosity": "Write into the instruction how long an answer is.",
    "extra_headers": "relquery does not send them. Leave them out.",
    "extra_body": "relquery does not send it. Leave it out.",
    "api_version": "relquery reaches servers with an OpenAI-compatible API: api_base='https://...'.",
}
_DEFAULTS = {"output_tokens": ("True", "False"), "max_ctx_len": 128000}
"""Of LOTUS, for what is refused unless it has this value. Others are refused unless they are
false, None or empty."""
SILENT = ("progress_bar_desc", "split_fields_into_cols")
"""Arguments that change nothing but what is shown on the way, or what is refused."""


def check_supported(given: Mapping[str, object], whose: str, accepted: Iterable[str] = ()) -> None:
    """Raises ConfigError for an argument of LOTUS that is set and that relquery does not have.

    whose: a verb or class. accepted: its arguments.
    """
    known = tuple(accepted)
    for name, value in given.items():
        if name in SILENT or name in known or (name in _REMEDIES and not _is_set(name, value)):
            continue
        if name in _REMEDIES:
            raise ConfigError(
                f"{whose} was given {name}, which is not supported. {_REMEDIES[name]}"
            )
        raise ConfigError(unknown("argument", name, known, of=whose))


def _is_set(name: str, value: object) -> bool:
    """Whether an argument has a value; a table, which is neither true nor false, is one."""
    try:
        return bool(value) and value != _DEFAULTS.get(name)
    except ValueError:
        return True


class _Refusing(type):
    """The class of what stands in place of something that LOTUS has."""

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise ConfigError(f"{cls.__name__} is not supported. {cls.__doc__}")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ConfigError(f"{cls.__name__} is not supported. {cls.__doc__}")


def refusing(name: str, remedy: str) -> Any:
    """What stands in place of something that LOTUS has: raises ConfigError when it is used."""
    return _Refusing(name, (), {"__doc__": remedy, "__module__": PACKAGE})


VERBS = {
    "sem_partition_by": "A group of any length is cut into parts anyway; group with group_by.",
}
"""Verbs of LOTUS that are refused, and what to do instead."""

PACKAGE = "relquery.frames.lotus"
_PAGES = "Fetch the pages first, and use a DataFrame of them."
_LAZY = "A frame of relquery is lazy: rq.frame(df, con).sem_filter(...).collect()."
NAMES = {
    "Optimizer": _LAZY,
    "Corpus": "Use a table, or passages(...) in SQL.",
    "web_search": _PAGES,
    "web_extract": _PAGES,
    "WebSearchCorpus": _PAGES,
    "llm_as_judge": "Call it on a DataFrame: df.llm_as_judge(...).",
    "pairwise_judge": "Call it on a DataFrame: df.pairwise_judge(...).",
    "data_connectors": "Read with DuckDB or pandas: con.sql(...).df(), pd.read_sql(...).",
    "nl_expression": "Columns in braces are read by the verbs themselves.",
    "utils": "Cluster with another library, such as scikit-learn.",
    "dtype_extensions": "Images are not supported.",
    "evals": "Call the judges on a DataFrame: df.llm_as_judge(...).",
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


def refused_name(name: str) -> Any:
    """The `__getattr__` of the package. Raises AttributeError for names that LOTUS has not."""
    if name.startswith("sem_") and name not in NAMES:
        return refusing(name, f"Write df.{name}(...).")
    return _refused(name, NAMES, PACKAGE)


def refused_type(name: str) -> Any:
    """The `__getattr__` of `types`. Raises AttributeError for names that LOTUS has not."""
    return _refused(name, _OF_TYPES, f"{PACKAGE}.types")


def _refused(name: str, remedies: dict[str, str], module: str) -> Any:
    if name in remedies:
        return refusing(name, remedies[name])
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


class _Absent(MetaPathFinder, Loader):
    """A finder of LOTUS's other modules, all of whose names are refused when they are used."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """How to import a module of LOTUS; None for others."""
        inside = name.removeprefix(f"{PACKAGE}.")
        if inside == name or inside.partition(".")[0] not in NAMES:
            return None
        return ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module."""
        inside = module.__name__.removeprefix(f"{PACKAGE}.")
        remedy = NAMES[inside.partition(".")[0]]

        def give(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return refusing(name, f"It is of lotus.{inside}. {remedy}")

        module.__getattr__ = give  # type: ignore[method-assign]


def refuse_imports() -> None:
    """Let LOTUS's other modules be imported. A second time changes nothing."""
    if not any(isinstance(finder, _Absent) for finder in sys.meta_path):
        sys.meta_path.append(_Absent())
