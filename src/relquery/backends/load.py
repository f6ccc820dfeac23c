"""Backends by the names of models, with the options that each takes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from relquery.backends.arguments import split_adapter
from relquery.backends.base import Adopted, Answering, Backend
from relquery.config import DEFAULT_FORM, OF_CONNECT, PromptForm
from relquery.errors import ConfigError, ModelError, did_you_mean, unknown

if TYPE_CHECKING:
    from relquery.backends.provider.config import ProviderConfig

_OF_OPENAI = re.compile(
    r"(?:openai/)?(?P<name>(?:chatgpt-|gpt-\d|o\d(?![^-])).*)", re.IGNORECASE | re.DOTALL
)
# A folder of Windows has a colon after a single letter.
_ELSEWHERE = re.compile(r"(?P<provider>[\w-]{2,}):.*", re.IGNORECASE | re.DOTALL)
_BY_NAME = re.compile(
    r"(?:anthropic/|google/)?(?P<name>(?P<family>claude|gemini)-.*)", re.IGNORECASE | re.DOTALL
)
_FAMILIES = {"claude": "anthropic", "gemini": "gemini"}
_TITLES = {"anthropic": "an Anthropic", "gemini": "a Gemini"}
_PROVIDERS = (
    *("openai", "anthropic", "gemini", "azure", "vertex", "bedrock", "groq", "together"),
    *("openrouter", "deepseek", "xai", "ollama", "lmstudio", "llamacpp"),
)
_OF_DEMO = re.compile(r"(?:^|:)demo(?:[@+]|$)")
"""The demo model was trained on prompts in JSON alone."""
_OF_ANY_PROVIDER = frozenset(
    (
        *("max_concurrency", "timeout", "max_retries", "deadline", "total_timeout", "budget"),
        *("budget_file", "allow_empty", "by_server", "batch", "batches"),
    )
)
"""Options that say nothing of where a provider is, who asks it, and how it is spoken to."""
_OF_ONE_PROVIDER = ("base_url", "api_key", "api_key_command", "rpm", "tpm", "service_tier")
_OF_SNOWFLAKE = re.compile(
    r"(?:llama\d|(?:llama|mistral|mixtral|snowflake|reka|jamba|deepseek|openai)-)[\w.-]*"
)
"""Names that Snowflake has for models, and nobody else."""
_SECONDS = 10.0  # that a server may take to tell its models
_NO_KEY = "none"
_OWNERS: dict[str, Literal["vllm", "relquery"]] = {"vllm": "vllm", "relquery": "relquery"}
"""What a server says of who owns its models, by which it is known."""


def load(model: str, /, **options: Any) -> Backend:
    """Open the backend that serves a model.

    model: "openai:NAME", "anthropic:NAME" or "gemini:NAME" for a provider, the address of a server
        of the OpenAI chat-completions form (http://HOST:8000/v1), "vllm:NAME" for vLLM in this
        process, else what the embedded engine loads (see local.load_backend).
    options: fields of ProviderConfig, or the options of local.load_backend. For an address `model`,
        too: the name of a model there, which is not needed if there is only one.

    Raises ConfigError, ModelError and MissingExtraError.
    """
    if _is_address(model):
        return _load_address(model, options)
    provider, _, name = model.partition(":")
    if provider in _PROVIDERS:
        return _load_provider(provider, name, options)
    _check_not_of_provider(model, options)
    if provider == "vllm":
        from relquery.vllm.in_process import InProcessBackend

        return InProcessBackend(name, **options)
    _check_local(split_adapter(model)[0])
    from relquery.backends.local.open import load_backend

    return load_backend(model, **options)


def is_served(model: str) -> bool:
    """Whether a server answers for a model, not this process."""
    return model.partition(":")[0] in _PROVIDERS or _is_address(model)


def is_shared(budget: object) -> bool:
    """Whether a budget is one of a day, a month or a ledger, which is counted in a ledger."""
    return bool(re.search(r"[/\w]\s*(day|month|ledger)\s*$", str(budget), re.IGNORECASE))


def default_form(model: str) -> PromptForm:
    """The form of prompts to a model where none is asked for, by the model's name."""
    return "json" if _OF_DEMO.search(model) else DEFAULT_FORM


def backend_of(model: str | Backend | Answering, options: dict[str, Any]) -> Backend:
    """A backend, or what answers like one, as it is; a model's name is opened.

    Raises what `load` raises, and ConfigError for anything else.
    """
    if isinstance(model, str):
        return load(model, **options)
    if not isinstance(model, Backend | Answering):
        raise ConfigError(
            f"model is {model!r}. Give a model name or folder, e.g. 'demo', or a backend."
        )
    if options:
        raise ConfigError(f"{', '.join(options)}: options need a model name, not a backend.")
    return model if isinstance(model, Backend) else Adopted(model)


def answering_of(
    source: object, model: object, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """What is to be opened, and its options. Raises ConfigError. source, model: see `connect`."""
    if source is None or model is None:
        return (model if source is None else source), options
    if not (isinstance(source, str) and _is_address(source)):
        raise ConfigError(
            f"connect was given {source!r:.60} and model={model!r:.60}. Give one of them, or the "
            "address of a server, which begins with http:// or https://, and a model there."
        )
    return source, options | {"model": model}


def load_named(
    name: str,
    known: Mapping[str, str | Mapping[str, Any]],
    own: str,
    options: Mapping[str, Any],
    ledger: str | Path | None,
) -> Backend:
    """Open a model that a call names. Raises what `load` raises.

    known: what names mean: a model, or the keywords of `connect` for one. own, options: the
    connection's model and its options, of which those hold for the other that fit it: for the same
    provider all of them, for another one those that say nothing of keys and addresses.
    """
    given = known.get(name, name)
    more = {"model": given} if isinstance(given, str) else dict(given)
    answering, more = answering_of(more.pop("source", None), more.pop("model", None), more)
    if not isinstance(answering, str):
        raise ConfigError(f"models has no 'model' for {name!r}: {{'model': 'openai:NAME', ...}}.")
    if _OF_SNOWFLAKE.fullmatch(answering) and not Path(answering).exists():
        raise ConfigError(
            f"'{name}' does not say whose it is. Write the provider before it, as in 'groq:NAME', "
            f"or say what it means: rq.connect(..., models={{'{name}': 'groq:NAME'}})."
        )
    shared = {}
    if is_served(answering) and is_served(own):
        of, of_own = (each.partition(":")[0] for each in (answering, own))
        is_same = of == of_own and not _is_address(answering)
        shared = {k: v for k, v in options.items() if is_same or k in _OF_ANY_PROVIDER}
    elif is_served(answering):  # those of the command line, where the own model is on this machine
        of_one = () if _is_address(answering) else _OF_ONE_PROVIDER
        shared = {k: v for k, v in options.items() if k in (*_OF_ANY_PROVIDER, *of_one)}
    return load(answering, **with_ledger(shared | more, ledger))


def with_ledger(options: dict[str, Any], ledger: str | Path | None) -> dict[str, Any]:
    """Options of a backend, with the ledger's file where it writes down batches or a budget."""
    if ledger in (None, ":memory:"):
        return options
    if options.get("batch"):
        options = {"batches": ledger} | options
    if is_shared(options.get("budget")):
        options = {"budget_file": ledger} | options
    return options


def _is_address(model: str) -> bool:
    return model.startswith(("http://", "https://"))


def _check_local(model: str) -> None:
    """Raises ConfigError for a provider's model, which the embedded engine cannot load."""
    if Path(model).exists() or model.startswith(("random:", "simulated:")):
        return
    if match := _OF_OPENAI.fullmatch(model):
        raise ConfigError(f"'{model}' is an OpenAI model. Write 'openai:{match['name']}'.")
    if match := _BY_NAME.fullmatch(model):
        provider = _FAMILIES[match["family"].lower()]
        raise ConfigError(
            f"'{model}' is {_TITLES[provider]} model. Write '{provider}:{match['name']}'."
        )
    if match := _ELSEWHERE.fullmatch(model):
        from relquery.model.gguf_store import find_in_ollama

        if find_in_ollama(model):
            return
        provider = match["provider"]
        raise ConfigError(
            f"The model '{model}' cannot be opened: '{provider}' is not supported. Use "
            f"NAME after one of {', '.join(f'{name}:' for name in _PROVIDERS)}; for any "
            "OpenAI-compatible server, 'openai:NAME' with its address in base_url=... or "
            "OPENAI_BASE_URL."
            + did_you_mean(provider, [*_PROVIDERS, "random", "simulated", "vllm"])
        )


def _load_provider(provider: str, name: str, options: dict[str, Any]) -> Backend:
    # Imported for such models alone: a provider's package takes half a second to import.
    from relquery.backends.provider.backend import ProviderBackend
    from relquery.backends.provider.config import ProviderConfig
    from relquery.backends.provider.providers import PROVIDERS

    of = f"{'an' if provider[0] in 'aeo' else 'a'} '{provider}:' model"
    _check_options(options, [field.name for field in fields(ProviderConfig)], of)
    config = ProviderConfig(**options)
    if config.batch:
        from relquery.backends.provider.batch_backend import BatchBackend

        return BatchBackend(name, config, PROVIDERS[provider])
    return ProviderBackend(name, config, PROVIDERS[provider])


def _load_address(url: str, options: dict[str, Any]) -> Backend:
    """The backend for a server. `model` is among the options unless the server has one model alone.

    vLLM and `relquery serve` are told which requests are one relQuery, unless `relqueries` says
    how. Raises ModelError if the server cannot be reached, ConfigError for a model that it lacks.
    """
    from relquery.backends.provider.backend import ProviderBackend
    from relquery.backends.provider.config import ProviderConfig

    known = [field.name for field in fields(ProviderConfig) if field.name != "base_url"]
    _check_options(options, ["model", *known], "a server")
    model, others = options.get("model"), {k: v for k, v in options.items() if k != "model"}
    config = ProviderConfig(base_url=url, **others)
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
    import httpx2

    from relquery.backends.provider.providers import OPENAI, Access

    access = Access.of(OPENAI, config)
    headers = {} if access.token is None else {"Authorization": f"Bearer {access.token()}"}
    try:
        with httpx2.Client(**access.settings | {"timeout": _SECONDS}) as client:
            reply = client.get("models", headers=headers)
            if not (reply.is_success or needed):
                return {}
            reply.raise_for_status()
            return {each["id"]: each.get("owned_by") or "" for each in reply.json()["data"]}
    except Exception as error:
        raise ModelError(
            f"{config.base_url} does not tell its models ({error}). Start the server, or check the "
            "address, which usually ends in /v1."
        ) from error


def _check_not_of_provider(model: str, options: dict[str, Any]) -> None:
    """Raises ConfigError for what only calls to a server have: what they cost, for example."""
    from relquery.backends.provider.config import ProviderConfig

    known = {field.name for field in fields(ProviderConfig)}
    if ignored := [option for option in options if option in known]:
        are = "are options" if len(ignored) > 1 else "is an option"
        raise ConfigError(
            f"{' and '.join(ignored)} {are} of models that a server answers for; '{model}' runs on "
            f"this machine. Leave {'them' if len(ignored) > 1 else 'it'} out, or ask a provider, "
            "e.g. openai:gpt-5-mini."
        )


def _check_options(options: dict[str, Any], known: list[str], of: str) -> None:
    for option in options:
        if option not in known:
            raise ConfigError(unknown("option", option, [*known, *OF_CONNECT], of=of))
