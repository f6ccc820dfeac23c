"""Which backend a model's name means, and which options it takes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from relquery.backends.base import Backend
from relquery.errors import ConfigError, did_you_mean


def load(model: str, **options: Any) -> Backend:
    """Open the backend that serves a model.

    model: "openai:NAME" for a provider or a server of the OpenAI chat-completions form, else what
        the embedded engine loads (see local.load_backend).
    options: fields of OpenAIConfig, or the options of local.load_backend.

    Raises ConfigError, ModelError and MissingExtraError.
    """
    provider, _, name = model.partition(":")
    if provider == "openai":
        return _load_openai(name, options)
    from relquery.backends.local import load_backend

    return load_backend(model, **options)


def _load_openai(name: str, options: dict[str, Any]) -> Backend:
    # Imported for this model alone: the provider's package takes half a second to import.
    from relquery.backends.openai import OpenAIBackend, OpenAIConfig

    known = [field.name for field in fields(OpenAIConfig)]
    for option in options:
        if option not in known:
            raise ConfigError(
                f"'{option}' is not an option of an 'openai:' model. Options: {', '.join(known)}."
                + did_you_mean(option, known)
            )
    return OpenAIBackend(name, OpenAIConfig(**options))
