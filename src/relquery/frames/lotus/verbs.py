"""Each verb of LOTUS as a frame, and what is done with the rows that it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from relquery.errors import ConfigError, type_of
from relquery.frames.frame import Frame, frame
from relquery.frames.lotus.examples import with_examples
from relquery.frames.lotus.refused import check_supported
from relquery.frames.lotus.settings import Settings
from relquery.frames.lotus.types import LongContextStrategy
from relquery.sql.result import Result

_DRAWING = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb that is ready to run. finish: what it makes of the rows."""

    frame: Frame
    with_stats: bool = False
    shows_cost: bool = False
    finish: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table

    def told(self, table: pd.DataFrame, result: Result) -> Any:
        """What LOTUS's verb returns. Counts the usage."""
        Settings.shared().lm.count(result.report)
        whole = self.finish(table)
        if not self.with_stats:
            return whole
        report = result.report
        tokens = report.prompt_tokens + report.output_tokens
        return whole, {"total_llm_calls": report.calls, "total_tokens": tokens}


def sem_filter(
    table: pd.DataFrame,
    user_instruction: str,
    return_all: bool = False,
    default: bool = True,
    suffix: str = "_filter",
    examples: pd.DataFrame | None = None,
    return_stats: bool = False,
    safe_mode: bool = False,
    **more: Any,
) -> Verb:
    """default: for answers that cannot be read; ours always can, as only Yes and No are allowed."""
    del default
    options = _options(more, "sem_filter")
    output = suffix if return_all else None
    asked = with_examples(user_instruction, examples, "sem_filter", is_filter=True)
    lazy = _frame(table).sem_filter(asked, output=output, **options)
    return Verb(lazy, return_stats, safe_mode)


def sem_map(
    table: pd.DataFrame,
    user_instruction: str,
    suffix: str = "_map",
    examples: pd.DataFrame | None = None,
    safe_mode: bool = False,
    **more: Any,
) -> Verb:
    """A column of text."""
    options = _options(more, "sem_map")
    asked = with_examples(user_instruction, examples, "sem_map")
    lazy = _frame(table).sem_map(asked, _quoted(suffix), **options)
    return Verb(lazy, shows_cost=safe_mode)


def sem_extract(
    table: pd.DataFrame,
    input_cols: list[str],
    output_cols: Mapping[str, str | None],
    safe_mode: bool = False,
    **more: Any,
) -> Verb:
    """Columns of text by their descriptions."""
    options = _options(more, "sem_extract")
    lazy = _frame(table).sem_extract(input_cols, output_cols, **options)
    return Verb(lazy, shows_cost=safe_mode)


def sem_agg(
    table: pd.DataFrame,
    user_instruction: str,
    all_cols: bool = False,
    suffix: str = "_output",
    group_by: list[str] | None = None,
    safe_mode: bool = False,
    long_context_strategy: LongContextStrategy | None = None,
    **more: Any,
) -> Verb:
    """One row, or one for each group with its keys."""
    if long_context_strategy is LongContextStrategy.TRUNCATE:
        raise ConfigError(
            "sem_agg does not truncate: groups that do not fit are asked about in parts, and the "
            "answers are put together. Leave out long_context_strategy."
        )
    options = _options(more, "sem_agg")
    lazy = _frame(table).sem_agg(
        user_instruction,
        suffix,
        by=group_by or (),
        columns=[str(name) for name in table.columns] if all_cols else (),
        **options,
    )
    return Verb(lazy, shows_cost=safe_mode)


def sem_topk(
    table: pd.DataFrame,
    user_instruction: str,
    K: int,  # noqa: N803
    method: str = "quick",
    group_by: list[str] | None = None,
    return_stats: bool = False,
    safe_mode: bool = False,
    **more: Any,
) -> Verb:
    """method: how LOTUS would compare rows; relquery scores each row, whatever it says."""
    methods = ("quick", "heap", "naive", "quick-sem")
    if method not in methods:
        raise ConfigError(f"method is {method!r}; it must be one of {', '.join(methods)}.")
    options = _options(more, "sem_topk")
    lazy = _frame(table).sem_topk(user_instruction, K, by=group_by or (), **options)
    return Verb(lazy, return_stats, safe_mode, lambda found: found.reset_index(drop=True))


def sem_join(
    table: pd.DataFrame,
    other: pd.DataFrame | pd.Series[Any],
    join_instruction: str,
    how: str = "inner",
    suffix: str = "_join",
    examples: pd.DataFrame | None = None,
    default: bool = True,
    return_stats: bool = False,
    safe_mode: bool = False,
    **more: Any,
) -> Verb:
    """suffix: of a column with explanations, which are refused. default: see sem_filter."""
    del suffix, default
    options = _options(more, "sem_join")
    asked = with_examples(join_instruction, examples, "sem_join", is_filter=True)
    lazy = _frame(table).sem_join(_table(other), asked, how, **options)
    return Verb(lazy, return_stats, safe_mode)


def sem_sim_join(
    table: pd.DataFrame,
    other: pd.DataFrame | pd.Series[Any],
    left_on: str,
    right_on: str,
    K: int,  # noqa: N803
    lsuffix: str = "",
    rsuffix: str = "",
    score_suffix: str = "",
    **more: Any,
) -> Verb:
    """Columns that both sides have get the suffixes."""
    _options(more, "sem_sim_join")
    right = _table(other)
    lazy = _frame(table).sem_sim_join(right, left_on, right_on, K, score=f"_scores{score_suffix}")
    both = [name for name in table.columns if name in right.columns]
    if both and lsuffix == rsuffix:
        raise ConfigError(
            f"sem_sim_join: both sides have the column '{both[0]}'. Give lsuffix and rsuffix."
        )
    names = {f"{name}:left": f"{name}{lsuffix}" for name in both}
    names |= {f"{name}:right": f"{name}{rsuffix}" for name in both}
    return Verb(lazy.rename(names) if names else lazy)


def sem_search(
    table: pd.DataFrame,
    col_name: str,
    query: str,
    K: int | None = None,  # noqa: N803
    n_rerank: int | None = None,
    return_scores: bool = False,
    suffix: str = "_sim_score",
    **more: Any,
) -> Verb:
    """n_rerank: of the K nearest, how many the language model ranks best."""
    options = _options(more, "sem_search")
    if K is None and n_rerank is None:
        raise ConfigError("sem_search needs K or n_rerank.")
    return Verb(
        _frame(table).sem_search(
            col_name,
            query,
            min(K or len(table), max(len(table), 1)),
            rerank=n_rerank,
            score=f"vec_scores{suffix}" if return_scores else None,
            **options,
        )
    )


def sem_dedup(table: pd.DataFrame, col_name: str, threshold: float, **more: Any) -> Verb:
    """The first row of each group."""
    _options(more, "sem_dedup")
    return Verb(_frame(table).sem_dedup(col_name, threshold))


VERBS: dict[str, Callable[..., Verb]] = {
    "sem_filter": sem_filter,
    "sem_map": sem_map,
    "sem_extract": sem_extract,
    "sem_agg": sem_agg,
    "sem_topk": sem_topk,
    "sem_join": sem_join,
    "sem_sim_join": sem_sim_join,
    "sem_search": sem_search,
    "sem_dedup": sem_dedup,
}


def _frame(table: pd.DataFrame) -> Frame:
    return frame(table, Settings.shared().connection())


def _options(more: dict[str, Any], verb: str) -> dict[str, Any]:
    """Sampling of a call: that of the model, and what the verb is given. Raises ConfigError."""
    check_supported(more, verb, _DRAWING)
    lm = Settings.shared().lm
    options: dict[str, Any] = {"max_tokens": lm.max_tokens}
    if lm.temperature:
        options["temperature"] = lm.temperature
    return options | {name: value for name, value in more.items() if name in _DRAWING}


def _table(other: object) -> pd.DataFrame:
    """The other side of a join. Raises ConfigError if it is not a table or has no name."""
    if isinstance(other, pd.DataFrame):
        return other
    if isinstance(other, pd.Series) and other.name is not None:
        return other.to_frame()
    raise ConfigError(
        f"The other side of a join is {type_of(other)}; it must be a pandas DataFrame, or a Series "
        "with a name. rq.frame(...).sem_join takes tables of other libraries too."
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '" VARCHAR'
