"""The settings that all of LOTUS's verbs read: which models are used, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from relquery.config import PromptForm
from relquery.errors import ConfigError, did_you_mean, warn
from relquery.frames.lotus.types import SerializationFormat

_DEFAULTS: Mapping[str, Any] = {
    "lm": None,
    "helper_lm": None,
    "rm": None,
    "vs": None,
    "reranker": None,
    "enable_cache": False,
    "serialization_format": SerializationFormat.DEFAULT,
    "enable_multithreading": True,
    "parallel_groupby_max_threads": 8,
}
_CLASSES = {"lm": "LM", "helper_lm": "LM", "rm": "RM"}
_FORMS: Mapping[SerializationFormat, PromptForm | None] = {
    SerializationFormat.DEFAULT: None,
    SerializationFormat.JSON: "json",
}


class Settings:
    """`configure` sets them for the program, `context` for a block. Each is read by its name."""

    def __init__(self) -> None:
        vars(self)["_given"] = {}
        vars(self)["_inner"] = ContextVar("relquery_lotus", default=None)

    def configure(self, **given: Any) -> None:
        """Set some. Raises ConfigError for what is not supported."""
        vars(self)["_given"] |= _checked(given)

    @contextmanager
    def context(self, **given: Any) -> Iterator[Settings]:
        """A block with other settings, in this thread or task alone."""
        inner: ContextVar[Any] = vars(self)["_inner"]
        token = inner.set({**(inner.get() or {}), **_checked(given)})
        try:
            yield self
        finally:
            inner.reset(token)

    def given(self, name: str) -> Any:
        """What a setting was set to; None if it has its default."""
        inner = vars(self)["_inner"].get() or {}
        return inner.get(name, vars(self)["_given"].get(name))

    def __getattr__(self, name: str) -> Any:
        if name not in _DEFAULTS:
            raise AttributeError(f"'Settings' object has no attribute {name!r}")
        inner = vars(self)["_inner"].get() or {}
        return {**_DEFAULTS, **vars(self)["_given"], **inner}[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self.configure(**{name: value})

    @property
    def form(self) -> PromptForm | None:
        """The form of prompts; None for the model's own. Raises ConfigError for XML."""
        if self.serialization_format not in _FORMS:
            raise ConfigError(
                "serialization_format is XML, in which relquery writes no prompts. Choose JSON, or "
                "DEFAULT, which is the shortest."
            )
        return _FORMS[self.serialization_format]


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if name not in _DEFAULTS:
            known = f" It has: {', '.join(_DEFAULTS)}."
            raise ConfigError(f"Invalid setting: {name}.{known}{did_you_mean(name, _DEFAULTS)}")
        classes = [kind.__name__ for kind in type(value).__mro__]
        if value is not None and name in _CLASSES and _CLASSES[name] not in classes:
            raise ConfigError(f"{name} is {value!r}; it must be made by a class of models.")
        if name == "serialization_format" and not isinstance(value, SerializationFormat):
            raise ConfigError(f"{name} is {value!r}; it must be a SerializationFormat.")
    if given.get("reranker") is not None:
        warn("relquery has no cross-encoder: n_rerank ranks with the language model.", UserWarning)
    return given


SHARED = Settings()
"""Those of the program, as LOTUS has them."""
