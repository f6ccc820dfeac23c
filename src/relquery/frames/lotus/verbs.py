"""LOTUS's verbs on pandas frames: df.sem_filter(...), and await df.asem_filter(...)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from relquery.errors import ConfigError, type_of
from relquery.frames.frame import Frame, frame
from relquery.frames.lotus import refused
from relquery.frames.lotus.clusters import sem_cluster_by
from relquery.frames.lotus.models.lm import connection, language_model
from relquery.frames.lotus.refused import check_supported
from relquery.frames.lotus.results import (
    Finish,
    Sides,
    answers_first,
    asked,
    beside,
    free,
    in_place,
    ranked,
    same,
    with_keys,
    with_scores,
)
from relquery.frames.lotus.settings import SHARED
from relquery.frames.lotus.types import (
    CascadeArgs,
    LongContextStrategy,
    ProxyModel,
    ReasoningStrategy,
)
from relquery.report import Report
from relquery.sql.names import quoted
from relquery.sql.result import Result

_DRAWING = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")
_WHY = "explanation"
_Stats = Callable[[Report], dict[str, Any]]
Examples = pd.DataFrame | None
Strategy = ReasoningStrategy | str | None


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb that is ready to run."""

    frame: Frame
    with_stats: _Stats | None = None
    """What it tells of a run, behind the rows."""
    shows_cost: bool = False
    finish: Finish = same
    """What it makes of the rows."""
    called: Callable[[], str] = str
    """Its name, arguments and rows as a text, by which a second run is known."""

    def told(self, table: pd.DataFrame, result: Result) -> Any:
        """What LOTUS's verb returns. Counts the usage."""
        if SHARED.lm is not None:
            language_model().count(result.report, self.called)
        whole = self.finish(table)
        return whole if self.with_stats is None else (whole, self.with_stats(result.report))


def sem_filter(
    table: pd.DataFrame,
    user_instruction: str,
    return_explanations: bool = False,
    return_all: bool = False,
    default: bool = True,
    suffix: str = "_filter",
    examples: Examples = None,
    strategy: Strategy = None,
    cascade_args: CascadeArgs | None = None,
    return_stats: bool = False,
    safe_mode: bool = False,
    additional_cot_instructions: str = "",
    system_prompt: str | None = None,
    **more: Any,
) -> Verb:
    """default: for answers that cannot be read; ours always can, as only Yes and No are allowed.

    cascade_args: let the helper_lm, or a head on embeddings, decide the clear rows.
    """
    del default
    options = _options(more, "sem_filter")
    reasons = _reasons(strategy) or return_explanations
    text = asked(
        user_instruction, "sem_filter", examples, system_prompt, is_filter=True, reasons=reasons,
        note=additional_cot_instructions if reasons else "",
    )  # fmt: skip
    output = free(suffix, table)
    if reasons:
        if cascade_args is not None:
            raise ConfigError("A cascade does not reason. Leave out strategy or cascade_args.")
        why = free(f"{_WHY}{suffix}", table)
        lazy = _frame(table).sem_map(
            text, f"{quoted(why)} VARCHAR, {quoted(output)} BOOLEAN", **options
        )
        lazy = lazy if return_all else lazy.filter(quoted(output))
        kept = [*lazy.columns[:-2], *[output] * return_all, *[why] * return_explanations]
        lazy = lazy.select(kept)
    else:
        given = options | _cascade(cascade_args)
        lazy = _frame(table).sem_filter(text, output=output if return_all else None, **given)
    names = {output: beside(suffix, table)} if return_all else {}
    stats = _stats(len(table)) if return_stats else None
    return Verb(lazy, stats, safe_mode, lambda found: found.rename(columns=names))


def sem_map(
    table: pd.DataFrame,
    user_instruction: str,
    system_prompt: str | None = None,
    return_explanations: bool = False,
    suffix: str = "_map",
    examples: Examples = None,
    strategy: Strategy = None,
    safe_mode: bool = False,
    **more: Any,
) -> Verb:
    """A column of text."""
    options = _options(more, "sem_map")
    reasons = _reasons(strategy) or return_explanations
    text = asked(user_instruction, "sem_map", examples, system_prompt, reasons=reasons)
    names = {free(suffix, table): suffix}
    outputs = [f"{quoted(name)} VARCHAR" for name in names]
    if reasons:
        names |= {free(f"{_WHY}{suffix}", table): f"{_WHY}{suffix}"}
        outputs = [f"{quoted(name)} VARCHAR" for name in reversed(names)]
    lazy = _frame(table).sem_map(text, ", ".join(outputs), **options)
    shown = names if return_explanations else dict([*names.items()][:1])
    lazy = lazy.select(*table.columns.map(str), *shown)
    return Verb(lazy, shows_cost=safe_mode, finish=in_place(shown))


def sem_extract(
    table: pd.DataFrame,
    input_cols: list[str],
    output_cols: Mapping[str, str | None],
    extract_quotes: bool = False,
    safe_mode: bool = False,
    return_explanations: bool = False,
    strategy: Strategy = None,
    **more: Any,
) -> Verb:
    """Columns of text by their descriptions."""
    options = _options(more, "sem_extract")
    wanted = dict(output_cols)
    if extract_quotes:
        wanted |= {f"{name}_quote": f"the words of the text that tell {name}" for name in wanted}
    reasons = _reasons(strategy) or return_explanations
    outputs = {_WHY: "why the values are these, step by step"} if reasons else {}
    names = {free(name, table): name for name in (*outputs, *wanted)}
    texts = {new: {**outputs, **wanted}[name] for new, name in names.items()}
    lazy = _frame(table).sem_extract(input_cols, texts, **options)
    shown = {new: name for new, name in names.items() if name != _WHY or return_explanations}
    lazy = lazy.select(*table.columns.map(str), *shown)
    return Verb(lazy, shows_cost=safe_mode, finish=in_place(shown))


def sem_agg(
    table: pd.DataFrame,
    user_instruction: str,
    all_cols: bool = False,
    suffix: str = "_output",
    group_by: str | list[str] | None = None,
    safe_mode: bool = False,
    long_context_strategy: LongContextStrategy | None = LongContextStrategy.CHUNK,
    **more: Any,
) -> Verb:
    """One row, or one for each group with its keys."""
    if long_context_strategy is LongContextStrategy.TRUNCATE:
        raise ConfigError(
            "sem_agg does not truncate: groups that do not fit are asked about in parts, and the "
            "answers are put together. Leave out long_context_strategy."
        )
    options = _options(more, "sem_agg")
    keys = _keys(group_by)
    lazy = _frame(with_keys(table, keys)).sem_agg(
        user_instruction,
        suffix,
        by=keys,
        columns=[str(name) for name in table.columns] if all_cols else (),
        **options,
    )
    return Verb(lazy, shows_cost=safe_mode, finish=answers_first(suffix, keys) if keys else same)


def sem_topk(
    table: pd.DataFrame,
    user_instruction: str,
    K: int,  # noqa: N803
    method: str = "quick",
    group_by: str | list[str] | None = None,
    return_stats: bool = False,
    safe_mode: bool = False,
    **more: Any,
) -> Verb:
    """method: how LOTUS would compare rows; relquery scores each row, whatever it says."""
    methods = ("quick", "heap", "naive", "quick-sem")
    if method not in methods:
        raise ConfigError(f"method is {method!r}; it must be one of {', '.join(methods)}.")
    options = _options(more, "sem_topk")
    keys = _keys(group_by)
    lazy = _frame(with_keys(table, keys)).sem_topk(user_instruction, K, by=keys, **options)
    return Verb(lazy, _stats() if return_stats else None, safe_mode, ranked(keys))


def sem_join(
    table: pd.DataFrame,
    other: pd.DataFrame | pd.Series[Any],
    join_instruction: str,
    how: str = "inner",
    suffix: str = "_join",
    examples: Examples = None,
    default: bool = True,
    return_stats: bool = False,
    safe_mode: bool = False,
    **more: Any,
) -> Verb:
    """suffix: of a column with explanations, which are refused. default: see sem_filter.

    return_stats has no effect: LOTUS gives them only for a cascade.
    """
    del suffix, default, return_stats
    options = _options(more, "sem_join")
    text = asked(join_instruction, "sem_join", examples, is_filter=True)
    lazy = _frame(table).sem_join(_table(other), text, how, **options)
    return Verb(lazy, shows_cost=safe_mode)


def sem_sim_join(
    table: pd.DataFrame,
    other: pd.DataFrame | pd.Series[Any],
    left_on: str,
    right_on: str,
    K: int,  # noqa: N803
    lsuffix: str = "",
    rsuffix: str = "",
    score_suffix: str = "",
    keep_index: bool = False,
    **more: Any,
) -> Verb:
    """Columns that both sides have get the suffixes. keep_index: with columns of both indexes."""
    check_supported(more, "sem_sim_join", accepted("sem_sim_join"))
    right = _table(other)
    both = [name for name in table.columns if name in right.columns]
    if both and lsuffix == rsuffix:
        raise ConfigError(
            f"sem_sim_join: both sides have the column '{both[0]}'. Give lsuffix and rsuffix."
        )
    sides = Sides.of(table, right, (lsuffix, rsuffix), f"_scores{score_suffix}", keep_index)
    left = frame(sides.left, connection(needs_model=False))
    lazy = left.sem_sim_join(sides.right, left_on, right_on, K, score=sides.score)
    return Verb(lazy, finish=sides.finish)


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
    check_supported(more, "sem_search", (*accepted("sem_search"), *_DRAWING))
    if K is None and n_rerank is None:
        raise ConfigError("sem_search needs K or n_rerank.")
    score = f"vec_scores{suffix}" if return_scores else None
    options = {} if n_rerank is None else _options(more, "sem_search")
    lazy = frame(table, connection(needs_model=n_rerank is not None)).sem_search(
        col_name,
        query,
        min(K or len(table), max(len(table), 1)),
        rerank=n_rerank,
        score=score,
        **options,
    )
    return Verb(lazy, finish=same if score is None else with_scores(score))


def sem_dedup(table: pd.DataFrame, col_name: str, threshold: float, **more: Any) -> Verb:
    """The first row of each group."""
    check_supported(more, "sem_dedup", accepted("sem_dedup"))
    rows = frame(table, connection(needs_model=False))
    return Verb(rows.sem_dedup(col_name, threshold))


VERBS: dict[str, Callable[..., Verb]] = {
    option.__name__: option
    for option in (
        sem_filter, sem_map, sem_extract, sem_agg, sem_topk, sem_join, sem_sim_join, sem_search,
        sem_dedup,
    )
}  # fmt: skip


def _frame(table: pd.DataFrame) -> Frame:
    return frame(table, connection())


def accepted(verb: str) -> tuple[str, ...]:
    """The parameters of a verb that are not refused."""
    own = inspect.signature(VERBS[verb]).parameters
    return tuple(name for name in own if name not in ("table", "more"))


def _options(more: dict[str, Any], verb: str) -> dict[str, Any]:
    """Sampling of a call: that of the model, and what the verb is given. Raises ConfigError."""
    check_supported(more, verb, (*accepted(verb), *_DRAWING))
    given = {name: value for name, value in more.items() if name in _DRAWING}
    return language_model().drawing() | given


def _reasons(strategy: Strategy) -> bool:
    """Whether the model is to reason before it answers. Raises ConfigError."""
    if isinstance(strategy, str):
        known = {strategy.name.lower(): strategy for strategy in ReasoningStrategy}
        if strategy.lower() not in known:
            raise ConfigError(f"strategy is {strategy!r}; it must be one of {', '.join(known)}.")
        strategy = known[strategy.lower()]
    if strategy is not None and not isinstance(strategy, ReasoningStrategy):
        raise ConfigError(f"strategy is {type_of(strategy)}; it must be a ReasoningStrategy.")
    return strategy in (ReasoningStrategy.COT, ReasoningStrategy.ZS_COT)


def _stats(rows: int = 0) -> _Stats:
    """What a verb tells of a run. rows: that a filter decides."""
    own = language_model().connection(None).backend.name

    def told(report: Report) -> dict[str, Any]:
        tokens = report.prompt_tokens + report.output_tokens
        known = {"total_tokens": tokens, "total_llm_calls": report.calls, "explanations": {}}
        if not rows:
            return known
        stages = [stage for stage in report.stages if stage.model in ("", own)]
        large = min(rows, sum(stage.calls + stage.ledger_hits for stage in stages))
        return known | {
            "filters_resolved_by_helper_model": rows - large,
            "filters_resolved_by_large_model": large,
        }

    return told


def _cascade(given: CascadeArgs | None) -> dict[str, Any]:
    """A cascade as options of a filter. Raises ConfigError without a helper_lm that it asks."""
    if given is None:
        return {}
    if not isinstance(given, CascadeArgs):
        raise ConfigError(f"cascade_args is {type_of(given)}; it must be a CascadeArgs.")
    if given.proxy_model is ProxyModel.HELPER_LM and SHARED.helper_lm is None:
        raise ConfigError(
            "cascade_args asks a helper_lm first, and none is configured: "
            "lotus.settings.configure(lm=LM(...), helper_lm=LM(...))."
        )
    return given.options()


def _keys(group_by: str | list[str] | None) -> list[str]:
    """The columns to group by."""
    return [group_by] if isinstance(group_by, str) else list(group_by or ())


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
    plain: dict[str, Callable[..., Any]] = {
        "sem_index": _indexed,
        "load_sem_index": _indexed,
        "sem_cluster_by": sem_cluster_by,
        "llm_as_judge": llm_as_judge,
        "pairwise_judge": pairwise_judge,
    }
    for name, function in plain.items():
        verbs[name], verbs[f"a{name}"] = function, _async(function)
    for name, remedy in refused.VERBS.items():
        verbs[name] = verbs[f"a{name}"] = refused.refusing(name, remedy)
    for name, call in verbs.items():
        setattr(pd.DataFrame, name, call)


def _ready(
    verb: Callable[..., Verb],
    table: pd.DataFrame,
    given: tuple[Any, ...],
    more: Mapping[str, Any],
) -> tuple[Verb, dict[str, Any]]:
    """A verb that is ready to run, and the options with which its frame is collected."""
    named = by_name(verb.__name__, given, more)
    form = SHARED.form

    def called() -> str:
        tables = [
            argument for argument in (table, *named.values()) if isinstance(argument, pd.DataFrame)
        ]
        rest = {k: v for k, v in named.items() if not isinstance(v, pd.DataFrame)}
        return f"{verb.__name__} {rest!r} {[frame.to_csv() for frame in tables]!r}"

    made = replace(verb(table, **named), called=called)
    return made, {} if form is None else {"form": form}


def _now(verb: Callable[..., Verb]) -> Callable[..., Any]:
    def run(table: pd.DataFrame, *given: Any, **more: Any) -> Any:
        made, options = _ready(verb, table, given, more)
        with made.frame.connection.lent.turn.taken():
            if made.shows_cost:
                print(made.frame.explain())
            return made.told(*made.frame.collected(**options))

    run.__doc__ = f"LOTUS's {verb.__name__}, run by relquery."
    return run


def _later(verb: Callable[..., Verb]) -> Callable[..., Any]:
    async def run(table: pd.DataFrame, *given: Any, **more: Any) -> Any:
        made, options = _ready(verb, table, given, more)
        if made.shows_cost:
            print(await made.frame.aexplain())
        return made.told(*await made.frame.acollected(**options))

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
    indexed = table.copy()
    indexed.attrs[_INDEXED] = {**table.attrs.get(_INDEXED, {}), col_name: index_dir}
    return indexed


def llm_as_judge(
    table: pd.DataFrame,
    judge_instruction: str,
    response_format: Any = None,
    n_trials: int = 1,
    system_prompt: str | None = None,
    suffix: str = "_judge",
    **more: Any,
) -> pd.DataFrame:
    """What the model says of each row, as often as there are trials: `sem_map` by another name.

    response_format: a class of pydantic with plain fields, of which each judgement is an object.
    """
    given = {"system_prompt": system_prompt, **more}
    for trial in range(n_trials):
        seed, output = {"seed": trial} if trial else {}, f"{suffix}_{trial}"
        if response_format is None:
            named = {**given, **seed, "suffix": output}
            table = _now(sem_map)(table, judge_instruction, **named)
            continue
        text = asked(judge_instruction, "llm_as_judge", None, system_prompt)
        options = _options(more, "sem_map") | seed
        judged = pd.Series(_objects(table, text, response_format, options), table.index, object)
        table = table.assign(**{output: judged})
    return table


_KINDS: dict[object, str] = {int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", str: "VARCHAR"}


def _objects(table: pd.DataFrame, text: str, kind: Any, options: Mapping[str, Any]) -> list[object]:
    """An answer for each row as an object of a class of pydantic. Raises ConfigError."""
    fields = getattr(kind, "model_fields", {})
    if not fields or any(field.annotation not in _KINDS for field in fields.values()):
        raise ConfigError(
            f"response_format is {kind!r}; it must be a class of pydantic whose fields are int, "
            "float, bool or str."
        )
    names = {name: free(name, table) for name in fields}
    outputs = ", ".join(f"{quoted(names[k])} {_KINDS[v.annotation]}" for k, v in fields.items())
    records = _frame(table).sem_map(text, outputs, **options).arrow().to_pylist()
    return [kind(**{name: row[new] for name, new in names.items()}) for row in records]


def pairwise_judge(
    table: pd.DataFrame,
    col1: str,
    col2: str,
    judge_instruction: str,
    response_format: object = None,
    n_trials: int = 1,
    permute_cols: bool = False,
    system_prompt: str | None = None,
    suffix: str = "_judge",
    **more: Any,
) -> pd.DataFrame:
    """A where the first column is better, B where the second is.

    permute_cols: show them the other way round in every second trial.
    """
    check_supported({"response_format": response_format}, "pairwise_judge")
    drawing = _options(more, "sem_map")
    text = asked(judge_instruction, "pairwise_judge", None, system_prompt)
    for trial in range(n_trials):
        turned = permute_cols and trial % 2 == 1
        first, other = (col2, col1) if turned else (col1, col2)
        pair = f"{text}\nA: {{{first}}}\nB: {{{other}}}\nWhich is better, A or B?"
        output, labels = free(f"{suffix}_{trial}", table), ["A", "B"]
        seed = {"seed": trial} if trial else {}
        lazy = _frame(table).sem_classify(pair, labels, output, **(drawing | seed))
        table = lazy.collect()
        if turned:
            table[output] = table[output].map({"A": "B", "B": "A"})
    return table


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
