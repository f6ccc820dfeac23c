"""LOTUS's LazyFrame: calls on a pandas frame that are made when it is executed.

Each verb runs by itself then; `rq.frame` plans a whole pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from relquery.errors import ConfigError

_REFUSED = ("optimize", "run", "mark_optimizable")


class LazyFrame:
    """A pandas frame that is given later, or what some calls make of it.

    Methods of a DataFrame and of its columns are those of a LazyFrame, LOTUS's verbs among them.
    """

    def __init__(self, df: pd.DataFrame | None = None) -> None:
        self._df = df
        self._compute: Callable[[Any], Any] | None = None

    @classmethod
    def from_fn(cls, fn: Callable[[list[Any]], Any], frames: Sequence[LazyFrame]) -> LazyFrame:
        """What a function makes of the rows of several frames."""
        made = cls()
        made._compute = lambda inputs: fn([frame._rows(inputs) for frame in frames])
        return made

    @classmethod
    def concat(cls, frames: Sequence[LazyFrame], **options: Any) -> LazyFrame:
        """The rows of several frames, as `pandas.concat` puts them together."""
        return cls.from_fn(lambda tables: pd.concat(tables, **options), frames)

    def execute(self, inputs: pd.DataFrame | Mapping[Any, pd.DataFrame] | None = None) -> Any:
        """The rows. inputs: those of the frame that it begins with, or of each by the frame.

        Raises ConfigError if a frame has none.
        """
        return self._rows({} if inputs is None else inputs)

    def filter(self, predicate: Callable[[pd.DataFrame], Any]) -> LazyFrame:
        """The rows for which a function of the table says true."""
        return LazyFrame.from_fn(lambda tables: tables[0][predicate(tables[0])], [self])

    def _rows(self, inputs: Any) -> Any:
        if self._compute is not None:
            return self._compute(inputs)
        given = inputs if isinstance(inputs, pd.DataFrame) else inputs.get(self, self._df)
        if given is None:
            raise ConfigError("A LazyFrame has no rows. Write lf.execute(df), or LazyFrame(df=df).")
        return given

    def _then(self, name: str) -> Callable[..., LazyFrame]:
        """A method whose call is made later."""

        def call(*given: Any, **named: Any) -> LazyFrame:
            def compute(inputs: Any) -> Any:
                def known(value: Any) -> Any:
                    return value._rows(inputs) if isinstance(value, LazyFrame) else value

                method = getattr(self._rows(inputs), name)
                return method(*map(known, given), **{k: known(v) for k, v in named.items()})

            made = LazyFrame()
            made._compute = compute
            return made

        return call

    def __getitem__(self, key: Any) -> LazyFrame:
        return self._then("__getitem__")(key)

    def __getattr__(self, name: str) -> Callable[..., LazyFrame]:
        if name in _REFUSED:
            raise ConfigError(
                f"{name} of a LazyFrame is not supported. rq.frame(df, con) plans a whole pipeline."
            )
        is_known = hasattr(pd.DataFrame, name) or hasattr(pd.Series, name)
        if name.startswith("_") or not is_known:
            raise AttributeError(f"'LazyFrame' object has no attribute {name!r}")
        return self._then(name)
