"""Gives pandas frames the verbs: df.sem_filter(...), and await df.asem_filter(...)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from relquery.errors import ConfigError
from relquery.frames.lotus import refused
from relquery.frames.lotus.verbs import VERBS, Verb

_INDEXED = "index_dirs"  # as LOTUS notes it in attrs
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


def register() -> None:
    """Add the verbs to pandas.DataFrame. A second time changes nothing."""
    verbs: dict[str, Callable[..., Any]] = {}
    for name, verb in VERBS.items():
        verbs[name], verbs[f"a{name}"] = _now(verb), _later(verb)
    for name in ("sem_index", "load_sem_index"):
        verbs[name], verbs[f"a{name}"] = _indexed, _async(_indexed)
    for name, remedy in refused.VERBS.items():
        verbs[name] = verbs[f"a{name}"] = refused.refusing(name, remedy)
    for name, call in verbs.items():
        setattr(pd.DataFrame, name, call)


def _now(verb: Callable[..., Verb]) -> Callable[..., Any]:
    def run(table: pd.DataFrame, *given: Any, **more: Any) -> Any:
        made = verb(table, **by_name(verb.__name__, given, more))
        with made.frame.connection.lent.turn.taken():
            if made.shows_cost:
                print(made.frame.explain())
            return made.told(*made.frame.collected())

    run.__doc__ = f"LOTUS's {verb.__name__}, run by relquery."
    return run


def _later(verb: Callable[..., Verb]) -> Callable[..., Any]:
    async def run(table: pd.DataFrame, *given: Any, **more: Any) -> Any:
        made = verb(table, **by_name(verb.__name__, given, more))
        if made.shows_cost:
            print(await made.frame.aexplain())
        return made.told(*await made.frame.acollected())

    run.__doc__ = f"The async form of {verb.__name__}."
    return run


def _async(function: Callable[..., Any]) -> Callable[..., Any]:
    async def run(*given: Any, **more: Any) -> Any:
        return function(*given, **more)

    return run


def _indexed(table: pd.DataFrame, col_name: str, index_dir: str) -> pd.DataFrame:
    """The same frame. relquery computes vectors when they are needed, so nothing is written."""
    if col_name not in table.columns:
        raise ConfigError(f"sem_index: the frame has no column {col_name!r}.")
    found = table.copy()
    found.attrs[_INDEXED] = {**table.attrs.get(_INDEXED, {}), col_name: index_dir}
    return found


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
