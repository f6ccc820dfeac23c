"""LOTUS's settings: which models the verbs on pandas frames use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from relquery.connection import Connection
from relquery.errors import ConfigError, unknown, warn
from relquery.frames.lotus.models import LM, RM, CrossEncoderReranker
from relquery.frames.lotus.refused import check_supported

# Answers are kept, and batches run at once.
_NO_EFFECT = ("enable_cache", "enable_multithreading", "parallel_groupby_max_threads")
_REFUSED = ("helper_lm", "serialization_format")
_NAMES = ("lm", "rm", "vs", "reranker", *_NO_EFFECT)


@dataclass(frozen=True, slots=True)
class _Models:
    lm: LM | None = None
    rm: RM | None = None
    vs: object = None
    reranker: CrossEncoderReranker | None = None


@dataclass(slots=True)
class Settings:
    """The models in use. `configure` sets them for the program, `context` for a block."""

    models: _Models = field(default_factory=_Models)
    inner: ContextVar[_Models | None] = field(
        default_factory=lambda: ContextVar("relquery_lotus", default=None)
    )

    @staticmethod
    def shared() -> Settings:
        """The settings that all verbs read, as LOTUS has them: one for the program."""
        return _SHARED

    @property
    def now(self) -> _Models:
        """The models that count here."""
        return self.inner.get() or self.models

    def configure(self, **given: Any) -> None:
        """Set lm, rm, vs or reranker. Raises ConfigError for what is not supported."""
        self.models = self._with(self.models, given)

    @contextmanager
    def context(self, **given: Any) -> Iterator[None]:
        """A block with other models, in this thread or task alone."""
        token = self.inner.set(self._with(self.now, given))
        try:
            yield
        finally:
            self.inner.reset(token)

    @property
    def lm(self) -> LM:
        """The language model. Raises ConfigError if there is none."""
        if self.now.lm is None:
            raise ConfigError(
                "No language model is configured: lotus.settings.configure(lm=LM(model='demo'))."
            )
        return self.now.lm

    @property
    def rm(self) -> RM | None:
        """What compares texts; None for relquery's default."""
        return self.now.rm

    def connection(self) -> Connection:
        """The connection that the verbs use."""
        return self.lm.connection(None if self.rm is None else self.rm.embedder)

    @staticmethod
    def _with(models: _Models, given: dict[str, Any]) -> _Models:
        for name in given:
            if name not in (*_NAMES, *_REFUSED):
                raise ConfigError(unknown("setting", name, _NAMES))
        check_supported(given, "settings", _NAMES)
        kinds: dict[Literal["lm", "rm"], type] = {"lm": LM, "rm": RM}
        for name, kind in kinds.items():
            value = given.get(name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r}; it must be made by a class of models.")
        if given.get("reranker") is not None:
            warn(
                "relquery has no cross-encoder: n_rerank ranks with the language model.",
                UserWarning,
            )
        unused = (*_NO_EFFECT, *_REFUSED)
        return replace(models, **{name: given[name] for name in given if name not in unused})


_SHARED = Settings()
