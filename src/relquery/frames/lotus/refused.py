"""What LOTUS has and relquery has not: refused by name, with what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from relquery.errors import ConfigError, unknown

_CASCADE = (
    "Cascades are not supported, so leave it out: every row is asked. df.sem_filter(..., "
    "safe_mode=True) tells the calls and tokens first, and rq.frame(...).sem_join(..., "
    "blocking=0.5) asks only about near pairs."
)
_LIMIT = "Estimate first, with safe_mode=True or rq.frame(...).explain()."
_REMEDIES = {
    "cascade_args": _CASCADE,
    "cascade_threshold": _CASCADE,
    "helper_lm": _CASCADE,
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
