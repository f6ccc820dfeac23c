"""What LOTUS has and relquery has not: refused by name, with what to do instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, NoReturn

from relquery.errors import ConfigError, unknown

_CASCADE = (
    "Only filters have a cascade, so leave it out: every row is asked. df.sem_filter(..., "
    "cascade_args=CascadeArgs(...)) asks a helper_lm first, and rq.frame(...).sem_join(..., "
    "blocking=0.5) asks only about near pairs."
)
_LIMIT = "Estimate first, with safe_mode=True or rq.frame(...).explain()."
_REMEDIES = {
    "cascade_args": _CASCADE,
    "cascade_threshold": _CASCADE,
    "helper_examples": _CASCADE,
    "examples": "Write the examples into the instruction.",
    "strategy": "Ask for reasons in the instruction of a sem_map, and filter by what it says.",
    "prompt_strategy": "Write what it adds into the instruction.",
    "demonstration_config": "Write the examples into the instruction.",
    "additional_cot_instructions": "Write them into the instruction.",
    "return_explanations": "Ask for reasons with a sem_map.",
    "return_raw_outputs": "An answer is stored as the model wrote it.",
    "system_prompt": "Write it into the instruction.",
    "output_tokens": "A filter is answered Yes or No.",
    "postprocessor": "Change the column with pandas.",
    "response_format": "Give rq.frame(...).sem_map types: output='answer VARCHAR, stars INTEGER'.",
    "extract_quotes": "Add a column for the quote to output_cols.",
    "use_operator_cache": "Answers are kept anyway. Leave it out.",
    "max_completion_tokens": "Write max_tokens.",
    "cache": "Answers are kept anyway; for a file, LM(model=rq.connect(..., ledger='answers.db')).",
    "physical_usage_limit": _LIMIT,
    "virtual_usage_limit": _LIMIT,
    "rate_limit": "Requests are retried when a server refuses; max_batch_size limits how many run.",
    "tpm_limit": "Requests are retried when a server refuses; max_batch_size limits how many run.",
    "max_ctx_len": "The model's own context counts. Leave it out.",
    "tokenizer": "A provider counts its tokens itself. Leave it out.",
    "reasoning_effort": "relquery does not send it. Leave it out, and set max_tokens so that the "
    "model's reasoning fits.",
    "verbosity": "Write into the instruction how long an answer is.",
    "extra_headers": "relquery does not send them. Leave them out.",
    "extra_body": "relquery does not send it. Leave it out.",
    "api_version": "relquery reaches servers with an OpenAI-compatible API: api_base='https://...'.",
    "serialization_format": "relquery sends fields in a form of its own. Leave it out.",
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


def refusing(name: str, remedy: str) -> Callable[..., Any]:
    """What stands in place of something that LOTUS has: raises ConfigError when it is called."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise ConfigError(f"{name} is not supported. {remedy}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refused. {remedy}"
    return refuse


VERBS = {
    "sem_cluster_by": "Classify with rq.frame(df, con).sem_classify('{text}', [...]).",
    "sem_partition_by": "A group of any length is cut into parts anyway; group with group_by.",
    "llm_as_judge": "Use sem_map, or rq.frame(df, con).sem_score for a number.",
    "pairwise_judge": "Use sem_map with both columns in the instruction.",
}
"""Verbs of LOTUS that are refused, and what to do instead."""

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
