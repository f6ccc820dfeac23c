"""What LOTUS has and relquery has not: refused by name, with what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relquery.errors import ConfigError, unknown

_REMEDIES = {
    "cascade_args": "Cascades are not supported. Leave it out: every row is asked.",
    "cascade_threshold": "Cascades are not supported. Leave it out: every row is asked.",
    "helper_lm": "Cascades are not supported. Leave it out.",
    "helper_examples": "Cascades are not supported. Leave it out.",
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
    "keep_index": "Make the index a column with reset_index().",
    "use_operator_cache": "Answers are kept anyway. Leave it out.",
    "cache": "Answers are kept anyway; for a file, LM(model=rq.connect(..., ledger='answers.db')).",
    "physical_usage_limit": "Estimate first, with safe_mode=True or rq.frame(...).explain().",
    "virtual_usage_limit": "Estimate first, with safe_mode=True or rq.frame(...).explain().",
    "rate_limit": "Requests are retried when a server refuses; max_batch_size limits how many run.",
    "max_ctx_len": "The model's own context counts. Leave it out.",
    "tokenizer": "A provider counts its tokens itself. Leave it out.",
}
SILENT = ("progress_bar_desc",)
"""Arguments that change nothing but what is shown on the way."""


def check_supported(given: Mapping[str, object], verb: str, known: tuple[str, ...] = ()) -> None:
    """Raises ConfigError for an argument of LOTUS that is set and that relquery does not have."""
    for name, value in given.items():
        if name in SILENT or name in known or (name in _REMEDIES and not _is_set(value)):
            continue
        if name in _REMEDIES:
            raise ConfigError(f"{verb} was given {name}, which is not supported. {_REMEDIES[name]}")
        raise ConfigError(unknown("argument", name, (*known, *_REMEDIES), of=verb))


def _is_set(value: object) -> bool:
    """Whether an argument has a value; a table, which is neither true nor false, is one."""
    try:
        return bool(value)
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
NAMES = {
    "LazyFrame": "A frame of relquery is lazy: rq.frame(df, con).sem_filter(...).collect().",
    "Corpus": "Use a table, or passages(...) in SQL.",
    "web_search": "Fetch the pages first, and use a DataFrame of them.",
    "web_extract": "Fetch the pages first, and use a DataFrame of them.",
}
"""Other names of its module that are refused."""
