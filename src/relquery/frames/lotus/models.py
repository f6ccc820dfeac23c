"""LOTUS's models and the settings that say which are used.

LM is a connection of relquery, and an RM names its embedder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from relquery.backends.base import Answering, Backend
from relquery.connection import Connection, connect
from relquery.errors import ConfigError, ModelError, unknown, warn
from relquery.frames.lotus.refused import check_supported
from relquery.frames.lotus.types import ProxyModel, UsageLimit
from relquery.report import Report

_OLLAMA = "http://localhost:11434/v1"
_OPENAI = ("gpt-", "chatgpt-", "o1", "o3", "o4")
_FOREIGN = {
    "ai21", "anyscale", "azure", "azure_ai", "baseten", "bedrock", "cerebras",
    "cloudflare", "cohere", "cohere_chat", "deepinfra", "deepseek", "fireworks_ai", "friendliai",
    "github", "groq", "huggingface", "lm_studio", "meta_llama", "mistral", "moonshot",
    "nebius", "novita", "nvidia_nim", "openrouter", "perplexity", "predibase", "replicate",
    "sagemaker", "sambanova", "together_ai", "vertex_ai", "volcengine", "watsonx", "xai",
}  # fmt: skip
_SERVERS = "LM(model='openai/NAME', api_base='https://...')"
_OPTIONS = {
    "api_base": "base_url", "base_url": "base_url", "api_key": "api_key",
    "max_batch_size": "max_concurrency", "timeout": "timeout",
    "num_retries": "max_retries", "max_retries": "max_retries",
}  # fmt: skip
"""Of a provider, as LOTUS and relquery name them."""
_SAMPLING = ("top_p", "top_k", "seed", "stop")
_MOST, _MOST_OF_REASONING = 512, 8192  # tokens of an answer, as LOTUS has them
_REASONING = ("gpt-5", "o1", "o3", "o4")
_REFUSED = {
    "reset_cache": "Answers are kept for the lifetime of an LM. Make a new one, or one that keeps "
    "none: LM(model=rq.connect(..., ledger=None)).",
    "count_tokens": "AI_COUNT_TOKENS in SQL counts tokens.",
    "encode_text": "AI_COUNT_TOKENS in SQL counts tokens.",
    "decode_tokens": "AI_COUNT_TOKENS in SQL counts tokens.",
}
# Answers are kept, and batches run at once.
_NO_EFFECT = ("enable_cache", "enable_multithreading", "parallel_groupby_max_threads")
_REFUSED_SETTINGS = ("serialization_format",)
HELPER = ProxyModel.HELPER_LM.value
"""The name of the helper_lm in settings and in calls."""
_SETTINGS = ("lm", "helper_lm", "rm", "vs", "reranker", *_NO_EFFECT)


@dataclass(slots=True)
class Usage:
    """Tokens of the requests that were sent. cached_prompt_tokens: those that were in a cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Of prompts and answers."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def total_cost(self) -> NoReturn:
        """Refused."""
        raise ConfigError(
            "total_cost is not supported. Multiply prompt_tokens and completion_tokens with the "
            "prices of your provider."
        )


@dataclass(slots=True)
class Stats:
    """calls: requests that were sent. cache_hits: requests that had been answered before."""

    physical_usage: Usage = field(default_factory=Usage)
    calls: int = 0
    cache_hits: int = 0
    operator_cache_hits: int = 0

    @property
    def virtual_usage(self) -> NoReturn:
        """Refused."""
        raise ConfigError(
            "virtual_usage is not supported: tokens of answers that were kept are not counted. "
            "Use physical_usage and cache_hits."
        )

    def count(self, report: Report) -> None:
        """Add what a verb has asked."""
        self.calls += report.calls
        self.cache_hits += report.ledger_hits
        self.physical_usage.prompt_tokens += report.prompt_tokens
        self.physical_usage.completion_tokens += report.output_tokens
        self.physical_usage.cached_prompt_tokens += report.cached_tokens

    def __str__(self) -> str:
        used = self.physical_usage
        return (
            f"{self.calls:,} calls, {used.prompt_tokens:,} prompt tokens, "
            f"{used.completion_tokens:,} output tokens"
        )


class LM:
    """A language model. Usage is counted from all that its verbs have asked.

    model: a name as LOTUS has it ("gpt-4o-mini", "ollama/llama3.2", "hosted_vllm/NAME" with
        `api_base`), a model of relquery ("demo", a Hugging Face name, a folder), a backend, or a
        connection of relquery.
    max_tokens: of an answer; None for 512, or 8192 for OpenAI's reasoning models.
    max_batch_size: requests that are under way at once; has no effect on a model of this machine.
    more: api_base, api_key, timeout and num_retries, of a provider; top_p, top_k, seed and stop,
        for all that the verbs ask.

    Parameters are in LOTUS's order. Raises ConfigError for what is not supported, and ModelError
    for a model that this machine should run and that cannot be loaded.
    """

    def __init__(
        self,
        model: str | Backend | Answering | Connection = "gpt-4o-mini",
        temperature: float = 0.0,
        max_ctx_len: int = 128000,
        max_tokens: int | None = None,
        max_batch_size: int | None = None,
        rate_limit: int | None = None,
        tpm_limit: int | None = None,
        tokenizer: object = None,
        cache: object = None,
        physical_usage_limit: UsageLimit | None = None,
        virtual_usage_limit: UsageLimit | None = None,
        **more: Any,
    ) -> None:
        refused = {
            "max_ctx_len": max_ctx_len,
            "rate_limit": rate_limit,
            "tpm_limit": tpm_limit,
            "tokenizer": tokenizer,
            "cache": cache,
            "physical_usage_limit": physical_usage_limit,
            "virtual_usage_limit": virtual_usage_limit,
        }
        check_supported(refused | more, "LM", _ACCEPTED)
        self.model, self.temperature = model, temperature
        self.max_tokens = _most(model) if max_tokens is None else max_tokens
        self.sampling = {name: more.pop(name) for name in _SAMPLING if name in more}
        is_remote = isinstance(model, str) and named(model)[0].startswith("openai:")
        if max_batch_size is not None and is_remote:
            more["max_batch_size"] = max_batch_size
        self.options = {_OPTIONS[name]: value for name, value in more.items() if name in _OPTIONS}
        self.connections: dict[str | None, Connection] = {}
        self.stats = Stats()
        if isinstance(model, str) and not is_remote:
            self._open(model)  # so that a misspelt name is an error here

    def _open(self, model: str) -> None:
        try:
            self.connection(None)
        except ModelError as error:
            raise ModelError(
                f"{error} If LM(model={model!r}) names a provider, relquery reaches servers with "
                f"an OpenAI-compatible API: {_SERVERS}."
            ) from error

    def connection(self, embedder: str | None) -> Connection:
        """The connection that asks the model; one for each embedder."""
        if isinstance(self.model, Connection):
            return self.model
        if embedder not in self.connections:
            model: Any = self.model
            options: dict[str, Any] = dict(self.options)
            if isinstance(model, str):
                model, more = named(model)
                options = more | options
            if self.connections:  # the model is loaded
                model, options = next(iter(self.connections.values())).backend, {}
            if embedder is not None:
                options["embedder"] = embedder
            self.connections[embedder] = connect(model, **options)
        return self.connections[embedder]

    @property
    def calls(self) -> int:
        """Requests that were sent since the last reset."""
        return self.stats.calls

    def drawing(self) -> dict[str, Any]:
        """How answers are drawn, as options of a frame's verbs."""
        drawn = {"temperature": self.temperature} if self.temperature else {}
        return {"max_tokens": self.max_tokens} | drawn | self.sampling

    def print_total_usage(self) -> None:
        """Print the calls and tokens since the last reset."""
        print(self.stats)

    def reset_stats(self) -> None:
        """Count from zero."""
        self.stats = Stats()

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise ConfigError("An LM is not called. Ask with rq.connect(...).prompt('...').")

    def __getattr__(self, name: str) -> NoReturn:
        if name in _REFUSED:
            raise ConfigError(f"{name} of an LM is not supported. {_REFUSED[name]}")
        raise AttributeError(f"'LM' object has no attribute {name!r}")


_ACCEPTED = (
    "model", "temperature", "max_tokens", "max_batch_size", *_OPTIONS, *_SAMPLING,
)  # fmt: skip


def _most(model: object) -> int:
    """Tokens of an answer if none are given: OpenAI's reasoning models spend them on reasoning."""
    name = model.removeprefix("openai/") if isinstance(model, str) else ""
    return _MOST_OF_REASONING if name.startswith(_REASONING) else _MOST


def named(model: str) -> tuple[str, dict[str, Any]]:
    """relquery's name of a model that LOTUS names, and options. Raises ConfigError."""
    provider, slash, name = model.partition("/")
    if model.startswith(_OPENAI):
        return f"openai:{model}", {}
    if slash and provider in ("openai", "hosted_vllm"):
        return f"openai:{name}", {}
    if slash and provider in ("anthropic", "gemini"):
        return f"{provider}:{name}", {}
    if slash and provider in ("ollama", "ollama_chat"):
        return f"openai:{name}", {"base_url": _OLLAMA, "api_key": "none"}
    if slash and provider in _FOREIGN:
        raise ConfigError(
            f"LM(model={model!r}) names the provider {provider}. relquery reaches servers with an "
            f"OpenAI-compatible API: {_SERVERS}."
        )
    return model, {}


@dataclass(frozen=True)
class RM:
    """What compares texts. embedder: as `rq.connect` takes it."""

    embedder: str


class SentenceTransformersRM(RM):
    """An encoder by its Hugging Face name or folder."""

    def __init__(self, model: str = "intfloat/e5-base-v2", **options: Any) -> None:
        _check_none(options, "SentenceTransformersRM")
        super().__init__(model)


class LiteLLMRM(RM):
    """An embedding model of OpenAI, or of a server with the same API."""

    def __init__(self, model: str = "text-embedding-3-small", **options: Any) -> None:
        _check_none(options, "LiteLLMRM")
        super().__init__(f"openai:{model.removeprefix('openai/')}")


class ColBERTv2RM(RM):
    """Refused."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise ConfigError("ColBERTv2RM is not supported. Use SentenceTransformersRM(model=...).")


@dataclass(frozen=True)
class CrossEncoderReranker:
    """Named in settings; rows are reranked by the language model in its place."""

    model: str = ""


def _check_none(options: dict[str, Any], name: str) -> None:
    sizes = ("max_batch_size", "normalize_embeddings", "device")
    for option in options:
        if option not in sizes:
            raise ConfigError(f"{name} was given {option}, which is not supported. Leave it out.")


@dataclass(frozen=True, slots=True)
class _Models:
    lm: LM | None = None
    helper_lm: LM | None = None
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

    @property
    def now(self) -> _Models:
        """The models that count here."""
        return self.inner.get() or self.models

    def configure(self, **given: Any) -> None:
        """Set lm, helper_lm, rm, vs or reranker. Raises ConfigError for what is not supported."""
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
        """The connection that the verbs use; calls name the helper_lm by its setting."""
        con = self.lm.connection(None if self.rm is None else self.rm.embedder)
        if (helper := self.now.helper_lm) is None:
            return con
        known = {**con.models.given, HELPER: helper.connection(None).backend}
        return replace(con, models=replace(con.models, given=known))

    @staticmethod
    def _with(models: _Models, given: dict[str, Any]) -> _Models:
        for name in given:
            if name not in (*_SETTINGS, *_REFUSED_SETTINGS):
                raise ConfigError(unknown("setting", name, _SETTINGS))
        check_supported(given, "settings", _SETTINGS)
        kinds: dict[str, type] = {"lm": LM, "helper_lm": LM, "rm": RM}
        for name, kind in kinds.items():
            value = given.get(name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r}; it must be made by a class of models.")
        if given.get("reranker") is not None:
            warn(
                "relquery has no cross-encoder: n_rerank ranks with the language model.",
                UserWarning,
            )
        unused = (*_NO_EFFECT, *_REFUSED_SETTINGS)
        return replace(models, **{name: given[name] for name in given if name not in unused})


SHARED = Settings()
"""The settings that all verbs read, as LOTUS has them: one for the program."""
