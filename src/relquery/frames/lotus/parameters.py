"""The parameters of LOTUS's verbs in their order, so that positional arguments mean the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relquery.errors import ConfigError

_TEXT = {
    "sem_filter": "user_instruction return_raw_outputs return_explanations return_all default "
    "suffix examples helper_examples strategy cascade_args return_stats safe_mode "
    "progress_bar_desc additional_cot_instructions system_prompt output_tokens",
    "sem_map": "user_instruction system_prompt postprocessor return_explanations "
    "return_raw_outputs suffix examples strategy safe_mode progress_bar_desc",
    "sem_extract": "input_cols output_cols extract_quotes postprocessor return_raw_outputs "
    "safe_mode progress_bar_desc return_explanations strategy",
    "sem_agg": "user_instruction all_cols suffix group_by safe_mode progress_bar_desc "
    "long_context_strategy split_fields_into_cols response_format",
    "sem_topk": "user_instruction K method strategy group_by cascade_threshold return_stats "
    "safe_mode return_explanations",
    "sem_join": "other join_instruction return_explanations how suffix examples strategy default "
    "cascade_args return_stats safe_mode progress_bar_desc",
    "sem_sim_join": "other left_on right_on K lsuffix rsuffix score_suffix keep_index",
    "sem_search": "col_name query K n_rerank return_scores suffix",
    "sem_dedup": "col_name threshold",
}
ORDERS: dict[str, tuple[str, ...]] = {verb: tuple(text.split()) for verb, text in _TEXT.items()}
"""Of LOTUS 1.2.4, by verb; those that are refused included."""


def by_name(verb: str, given: tuple[Any, ...], more: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names. Raises ConfigError for too many, or one twice."""
    order = ORDERS[verb]
    if len(given) > len(order):
        raise ConfigError(
            f"{verb} was given {len(given)} arguments without a name; it takes {len(order)}: "
            f"{', '.join(order)}."
        )
    named = dict(zip(order, given, strict=False))
    for name in named.keys() & more.keys():
        raise ConfigError(
            f"{verb} was given {name} twice: without a name, in place {order.index(name) + 1}, "
            "and by its name. Leave out one of them."
        )
    return named | dict(more)
