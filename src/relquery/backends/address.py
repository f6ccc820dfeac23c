"""A server by its address: which models it has, and how it is told of relQueries."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from typing import Literal

import openai

from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.providers import OPENAI, key_of
from relquery.errors import ConfigError, ModelError, did_you_mean

_SECONDS = 10.0
_NO_KEY = "none"
_OWNERS: dict[str, Literal["vllm", "relquery"]] = {"vllm": "vllm", "relquery": "relquery"}
"""What a server says of who owns its models, by which it is known."""


def at_address(model: str | None, config: ProviderConfig) -> ProviderBackend:
    """The backend for a server. model: None if the server has one model alone.

    vLLM and `relquery serve` are told which requests are one relQuery, unless `config` says how.
    Raises ModelError if the server cannot be reached, ConfigError for a model that it lacks.
    """
    if not config.api_key and config.api_key_command is None:
        config = replace(config, api_key=os.environ.get("OPENAI_API_KEY") or _NO_KEY)
    owners = _models(config, needed=model is None)
    if model is None:
        if len(owners) != 1:
            raise ConfigError(
                f"{config.base_url} has {len(owners)} models: {', '.join(owners) or 'none'}. "
                "Name one: connect(URL, model='NAME')."
            )
        (model,) = owners
    if owners and model not in owners:
        raise ConfigError(
            f"{config.base_url} has no model {model!r}. It has: {', '.join(owners)}."
            + did_you_mean(model, list(owners))
        )
    if config.relqueries is None:
        config = replace(config, relqueries=_OWNERS.get(owners.get(model, "")))
    return ProviderBackend(model, config)


def _models(config: ProviderConfig, needed: bool) -> dict[str, str]:
    """The models of a server, each with its owner; none if it does not tell, and need not."""
    try:
        with closing(
            openai.OpenAI(
                base_url=config.base_url,
                api_key=key_of(OPENAI, config),
                timeout=_SECONDS,
                max_retries=1,
                default_headers=config.headers,
            )
        ) as client:
            return {each.id: each.owned_by or "" for each in client.models.list()}
    except Exception as error:
        if not needed and isinstance(error, openai.APIStatusError):
            return {}
        raise ModelError(
            f"{config.base_url} does not tell its models ({error}). Start the server, or check the "
            "address, which usually ends in /v1."
        ) from error
