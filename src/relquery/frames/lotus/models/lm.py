"""LOTUS's language model: a connection of relquery, with counts of what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from relquery.backends.base import Answering, Backend
from relquery.connection import Connection, connect
from relquery.errors import ConfigError, ModelError, RequestError
from relquery.frames.lotus.cache import Cache
from relquery.frames.lotus.refused import check_supported
from relquery.frames.lotus.settings import SHARED
from relquery.frames.lotus.types import LMOutput, LMStats, ProxyModel, TotalUsage, UsageLimit
from relquery.ledger import look_up
from relquery.prompt import Answer, Prompt, Role, Sampling, Span
from relquery.report import Report
from relquery.retrieval.embedder import Embedder

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
    "api_base": "base_url", "base_url": "base_url", "api_key": "api_key", "timeout": "timeout",
    "num_retries": "max_retries", "max_retries": "max_retries",
}  # fmt: skip
"""Of a provider, as LOTUS and relquery name them."""
_SAMPLING = ("top_p", "top_k", "seed", "stop")
DEFAULT_MAX_TOKENS, DEFAULT_REASONING_MAX_TOKENS = 512, 8192
"""Tokens of an answer, as LOTUS has them."""
_REASONING = ("gpt-5", "o1", "o3", "o4")
_AT_ONCE = 64
"""Requests that are under way at once, as LOTUS has them."""
_REFUSED = {
    "encode_text": "AI_COUNT_TOKENS in SQL counts tokens.",
    "decode_tokens": "AI_COUNT_TOKENS in SQL counts tokens.",
    "format_logprobs_for_filter_cascade": "Cascades are computed by the verbs.",
}
_NONE = "No language model is configured: lotus.settings.configure(lm=LM(model='demo'))."
HELPER = ProxyModel.HELPER_LM.value
"""The name of the helper_lm in settings and in calls."""


class LM:
    """A language model. Usage is counted from all that it was asked.

    model: a name as LOTUS has it ("gpt-4o-mini", "ollama/llama3.2", "hosted_vllm/NAME" with
        `api_base`), a model of relquery ("demo", a Hugging Face name, a folder), a backend, or a
        connection of relquery.
    max_tokens: of an answer; None for 512, or 8192 for OpenAI's reasoning models.
    max_batch_size, rate_limit, tpm_limit: requests that are under way at once, and requests and
        tokens a minute; they have no effect on a model of this machine.
    tokenizer: of the `tokenizers` library, for `count_tokens`.
    cache: where answers are kept; memory if none is given.
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
        tokenizer: Any = None,
        cache: Cache | None = None,
        physical_usage_limit: UsageLimit | None = None,
        virtual_usage_limit: UsageLimit | None = None,
        **more: Any,
    ) -> None:
        check_supported({"max_ctx_len": max_ctx_len, **more}, "LM", _ACCEPTED)
        self.model, self.temperature, self.tokenizer = model, temperature, tokenizer
        self.rate_limit, self.tpm_limit = rate_limit, tpm_limit
        usual = DEFAULT_REASONING_MAX_TOKENS if self.is_reasoning_model() else DEFAULT_MAX_TOKENS
        self.max_tokens = usual if max_tokens is None else max_tokens
        self.kwargs = {"temperature": temperature, "max_completion_tokens": self.max_tokens}
        self.max_batch_size = min(max_batch_size or _AT_ONCE, rate_limit or _AT_ONCE)
        if max_batch_size is not None and rate_limit is None:
            self.max_batch_size = max_batch_size
        self.sampling = {name: more.pop(name) for name in _SAMPLING if name in more}
        self.limits = physical_usage_limit or UsageLimit(), virtual_usage_limit or UsageLimit()
        self.options = {_OPTIONS[name]: value for name, value in more.items() if name in _OPTIONS}
        if cache is not None:
            self.options["ledger"] = cache.ledger
        is_remote = isinstance(model, str) and _is_remote(named(model)[0])
        if is_remote:
            of_provider = {
                "max_concurrency": None if max_batch_size is None else self.max_batch_size,
                "rpm": rate_limit,
                "tpm": tpm_limit,
            }
            self.options |= {
                name: value for name, value in of_provider.items() if value is not None
            }
        self.connections: dict[str | Embedder | None, Connection] = {}
        self.stats = LMStats()
        self._verbs: dict[str, TotalUsage] = {}
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

    def connection(self, embedder: str | Embedder | None) -> Connection:
        """The connection that asks the model; one for each embedder."""
        if isinstance(self.model, Connection):
            return self.connections.setdefault(None, self.model)
        if embedder not in self.connections:
            model: Any = self.model
            options: dict[str, Any] = dict(self.options)
            if isinstance(model, str):
                model, more = named(model)
                options = more | options
            if self.connections:  # the model is loaded
                first = next(iter(self.connections.values()))
                model, options = first.backend, {}
                if "ledger" in self.options:
                    options["ledger"] = self.options["ledger"]
            if embedder is not None:
                options["embedder"] = embedder
            self.connections[embedder] = connect(model, **options)
        return self.connections[embedder]

    def reset_cache(self, max_size: int | None = None) -> None:
        """Forget the answers that it has given, in memory; those of a cache file stay there."""
        del max_size
        self._verbs.clear()
        for embedder, con in [*self.connections.items()]:
            ledger = None if con.ledger is None else connect(con.backend).ledger
            self.connections[embedder] = replace(con, ledger=ledger)

    def is_reasoning_model(self) -> bool:
        """Whether it spends tokens on reasoning before it answers, as far as its name tells."""
        name = self.model.removeprefix("openai/") if isinstance(self.model, str) else ""
        return name.startswith(_REASONING)

    @property
    def calls(self) -> int:
        """Requests that were sent since the last reset."""
        return self.stats.calls

    def drawing(self) -> dict[str, Any]:
        """How answers are drawn, as options of a frame's verbs."""
        drawn = {"temperature": self.temperature} if self.temperature else {}
        return {"max_tokens": self.max_tokens} | drawn | self.sampling

    def count_tokens(self, messages: str | Sequence[Mapping[str, Any]]) -> int:
        """Tokens of a text or of messages; of a provider's model, one for four characters."""
        texts = (
            [messages]
            if isinstance(messages, str)
            else [message["content"] for message in messages]
        )
        if self.tokenizer is not None:
            return sum(len(self.tokenizer.encode(text)) for text in texts)
        con = self.connection(None)
        return sum(con.sql("SELECT AI_COUNT_TOKENS($1)", [text]).fetchall()[0][0] for text in texts)

    def print_total_usage(self) -> None:
        """Print the calls and tokens since the last reset."""
        print(self.stats)

    def reset_stats(self) -> None:
        """Count from zero."""
        self.stats = LMStats()

    def count(self, report: Report, verb: Callable[[], str]) -> None:
        """Add what a verb has asked. verb: gives its name, arguments and rows as a text.

        Raises LotusUsageLimitException.
        """
        usd = sum(stage.usd or 0.0 for stage in report.stages)
        tokens = report.prompt_tokens, report.output_tokens
        used = TotalUsage(*tokens, sum(tokens), usd, report.cached_tokens)
        known = None
        if SHARED.enable_cache:
            name = verb()
            known = None if report.calls else self._verbs.get(name)
            self._verbs[name] = known or used
        self._count(used, report.calls, report.ledger_hits, known)

    def _count(
        self, used: TotalUsage, calls: int, hits: int, known: TotalUsage | None = None
    ) -> None:
        stats = self.stats
        stats.calls += calls
        stats.physical_usage += used
        stats.virtual_usage += used
        if known is not None:
            stats.operator_cache_hits += 1
            stats.virtual_usage += known
        elif hits:
            stats.cache_hits += hits
            whole, sent = stats.physical_usage, max(1, stats.calls)
            tokens = (whole.prompt_tokens * hits // sent, whole.completion_tokens * hits // sent)
            cost = whole.total_cost * hits / sent
            stats.virtual_usage += TotalUsage(*tokens, sum(tokens), cost)
        for limit, which in zip(self.limits, ("physical", "virtual"), strict=True):
            limit.check(getattr(stats, f"{which}_usage"), which)

    def __call__(
        self, messages: Sequence[Any], show_progress_bar: bool = True, **sampling: Any
    ) -> LMOutput:
        """Answer conversations, each a list of messages with `role` and `content`.

        Raises RequestError for one that has no answer, and LotusUsageLimitException.
        """
        del show_progress_bar
        if messages and isinstance(messages[0], Mapping):
            messages = [messages]
        prompts = [_prompt(message) for message in messages]
        drawn = Sampling(**(self.drawing() | sampling))
        con = self.connection(None)
        ledger = con.ledger if SHARED.enable_cache else None
        keys, given = None, dict[int, Answer]()
        if ledger is not None:
            keys, given = look_up(ledger, con.backend.known_as(), prompts, drawn)
        hits, left = len(given), [place for place in range(len(prompts)) if place not in given]
        for index, answer in con.backend.answer([prompts[place] for place in left], drawn):
            if answer.text is None:
                raise RequestError(answer.error or "The model gave no answer.")
            given[left[index]] = answer
            if ledger is not None and keys is not None:
                ledger.put([keys.entry(left[index], answer)])
        sent = [given[place] for place in left]
        tokens = (
            sum(answer.prompt_tokens for answer in sent),
            sum(answer.output_tokens for answer in sent),
        )
        self._count(TotalUsage(*tokens, sum(tokens)), len(left), hits)
        return LMOutput([given[place].text or "" for place in range(len(prompts))])

    def __getattr__(self, name: str) -> NoReturn:
        if name in _REFUSED:
            raise ConfigError(f"{name} of an LM is not supported. {_REFUSED[name]}")
        raise AttributeError(f"'LM' object has no attribute {name!r}")


_ACCEPTED = (
    "model", "temperature", "max_tokens", "max_batch_size", "rate_limit", "tpm_limit", "tokenizer",
    "cache", "physical_usage_limit", "virtual_usage_limit", *_OPTIONS, *_SAMPLING,
)  # fmt: skip


def _prompt(messages: Sequence[Mapping[str, Any]]) -> Prompt:
    """A conversation. Raises ConfigError for other roles."""
    known = {role.value: role for role in (Role.SYSTEM, Role.USER, Role.ASSISTANT)}
    for message in messages:
        if message["role"] not in known:
            raise ConfigError(
                f"A message has the role {message['role']!r}; known: {', '.join(known)}."
            )
    return tuple(Span(str(message["content"]), known[message["role"]]) for message in messages)


def _is_remote(name: str) -> bool:
    return name.startswith(("openai:", "anthropic:", "gemini:"))


def named(model: str) -> tuple[str, dict[str, Any]]:
    """relquery's name of a model that LOTUS names, and options. Raises ConfigError."""
    provider, slash, name = model.partition("/")
    if model.startswith(_OPENAI):
        return f"openai:{model}", {}
    if model.startswith("claude-"):
        return f"anthropic:{model}", {}
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


class NoModel(Backend):
    """The model where none is configured: it answers nothing."""

    name = "none"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> NoReturn:
        """Raises ConfigError."""
        raise ConfigError(_NONE)


@dataclass(slots=True)
class _Plain:
    """Connections without a language model, by their embedders."""

    connections: dict[str | Embedder | None, Connection]

    def of(self, embedder: str | Embedder | None) -> Connection:
        """The one with an embedder."""
        if embedder not in self.connections:
            options: dict[str, Any] = {} if embedder is None else {"embedder": embedder}
            self.connections[embedder] = connect(NoModel(), **options)
        return self.connections[embedder]


_PLAIN = _Plain({})


def language_model() -> LM:
    """The LM of the settings. Raises ConfigError if there is none."""
    if SHARED.lm is None:
        raise ConfigError(_NONE)
    model: LM = SHARED.lm
    return model


def connection(*, needs_model: bool = True) -> Connection:
    """The connection that the verbs use; calls name the helper_lm by its setting.

    Raises ConfigError if there is no language model, and one is needed.
    """
    embedder = None if SHARED.rm is None else SHARED.rm.embedder
    if SHARED.lm is None and not needs_model:
        return _PLAIN.of(embedder)
    con = language_model().connection(embedder)
    if SHARED.given("enable_cache") is False:
        con = replace(con, ledger=None)
    if (helper := SHARED.helper_lm) is None:
        return con
    known = {**con.models.given, HELPER: helper.connection(None).backend}
    return replace(con, models=replace(con.models, given=known))
