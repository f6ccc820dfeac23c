"""LOTUS's models: LM is a connection of relquery, and an RM names its embedder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relquery.backends.base import Answering, Backend
from relquery.connection import Connection, connect
from relquery.errors import ConfigError, ModelError
from relquery.frames.lotus.refused import check_supported
from relquery.report import Report

_OLLAMA = "http://localhost:11434/v1"
_OPENAI = ("gpt-", "chatgpt-", "o1", "o3", "o4")
_FOREIGN = {
    "ai21", "anthropic", "anyscale", "azure", "azure_ai", "baseten", "bedrock", "cerebras",
    "cloudflare", "cohere", "cohere_chat", "deepinfra", "deepseek", "fireworks_ai", "friendliai",
    "gemini", "github", "groq", "huggingface", "lm_studio", "meta_llama", "mistral", "moonshot",
    "nebius", "novita", "nvidia_nim", "openrouter", "perplexity", "predibase", "replicate",
    "sagemaker", "sambanova", "together_ai", "vertex_ai", "volcengine", "watsonx", "xai",
}  # fmt: skip
_SERVERS = "LM(model='openai/NAME', api_base='https://...')"
_OPTIONS = {"api_base": "base_url", "api_key": "api_key", "max_batch_size": "max_concurrency"}


@dataclass(eq=False)
class LM:
    """A language model. Usage is counted from all that its verbs have asked.

    model: a name as LOTUS has it ("gpt-4o-mini", "ollama/llama3.2", "hosted_vllm/NAME" with
        `api_base`), a model of relquery ("demo", a Hugging Face name, a folder), a backend, or a
        connection of relquery.
    options: api_base, api_key and max_batch_size, of a provider.

    Raises ConfigError for what is not supported, and ModelError for a model that this machine
    should run and that cannot be loaded.
    """

    model: str | Backend | Answering | Connection = "gpt-4o-mini"
    temperature: float = 0.0
    max_tokens: int = 512
    options: dict[str, Any] = field(default_factory=dict)
    connections: dict[str | None, Connection] = field(default_factory=dict, repr=False)
    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0

    def __init__(
        self,
        model: str | Backend | Answering | Connection = "gpt-4o-mini",
        temperature: float = 0.0,
        max_tokens: int = 512,
        **options: Any,
    ) -> None:
        check_supported(options, "LM", tuple(_OPTIONS))
        self.model, self.temperature, self.max_tokens = model, temperature, max_tokens
        self.options, self.connections = options, {}
        self.reset_stats()
        if isinstance(model, str) and not named(model)[0].startswith("openai:"):
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
            options = {_OPTIONS[name]: value for name, value in self.options.items()}
            if isinstance(model, str):
                model, more = named(model)
                options = more | options
            if self.connections:  # the model is loaded
                model, options = next(iter(self.connections.values())).backend, {}
            if embedder is not None:
                options["embedder"] = embedder
            self.connections[embedder] = connect(model, **options)
        return self.connections[embedder]

    def count(self, report: Report) -> None:
        """Add what a verb has asked."""
        self.calls += report.calls
        self.prompt_tokens += report.prompt_tokens
        self.output_tokens += report.output_tokens

    def print_total_usage(self) -> None:
        """Print the calls and tokens since the last reset."""
        print(
            f"{self.calls:,} calls, {self.prompt_tokens:,} prompt tokens, "
            f"{self.output_tokens:,} output tokens"
        )

    def reset_stats(self) -> None:
        """Count from zero."""
        self.calls = self.prompt_tokens = self.output_tokens = 0


def named(model: str) -> tuple[str, dict[str, Any]]:
    """relquery's name of a model that LOTUS names, and options. Raises ConfigError."""
    provider, slash, name = model.partition("/")
    if model.startswith(_OPENAI):
        return f"openai:{model}", {}
    if slash and provider in ("openai", "hosted_vllm"):
        return f"openai:{name}", {}
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
