"""Gives pandas frames the verbs: df.sem_filter(...), and await df.asem_filter(...)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from relquery.errors import ConfigError
from relquery.frames.lotus import refused
from relquery.frames.lotus.parameters import by_name
from relquery.frames.lotus.verbs import VERBS, Verb

_INDEXED = "index_dirs"  # as LOTUS notes it in attrs


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
