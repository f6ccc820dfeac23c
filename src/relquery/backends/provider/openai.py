"""A provider, or any server of the OpenAI chat-completions form, as a backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import openai

from relquery.backends.provider.answers import Answers, Mailbox
from relquery.backends.provider.batch import Batch
from relquery.backends.provider.trial import ENOUGH, AllAlikeError, Trial
from relquery.errors import ConfigError, ModelError
from relquery.prompt import Prompt, Sampling

_DEFAULT_HOST = "api.openai.com"
_CONNECT_SECONDS = 10.0
_MOST_STOPS = 4
_MOST_CONNECTIONS = 1000  # of the SDK's pool; more would wait for a connection until the timeout


@dataclass(frozen=True, slots=True)
class OpenAIConfig:
    """How a provider is called.

    base_url: the server, usually ending in /v1; None: OPENAI_BASE_URL, else OpenAI.
    api_key: None: OPENAI_API_KEY.
    max_concurrency: requests of one query stage that are under way at once.
    timeout: seconds until a request without an answer is given up and tried again.
    max_retries: tries after the first, when the connection fails or the server answers 408, 409,
        429 or 5xx; after the seconds that the server names, else after 0.5, 1, 2, 4, 8, 8, ...
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    max_concurrency: int = 16
    timeout: float = 60.0
    max_retries: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.max_concurrency <= _MOST_CONNECTIONS:
            raise ConfigError(
                f"max_concurrency is {self.max_concurrency}; "
                f"it must be from 1 to {_MOST_CONNECTIONS}."
            )
        if not self.timeout > 0:
            raise ConfigError(f"timeout is {self.timeout}; it must be above 0 seconds.")
        if self.max_retries < 0:
            raise ConfigError(f"max_retries is {self.max_retries}; it must not be negative.")


class OpenAIBackend:
    """Asks a server, `max_concurrency` prompts at a time, started in the order given.

    model: the name that the server knows. Raises ModelError without a key, ConfigError.
    """

    def __init__(self, model: str, config: OpenAIConfig | None = None) -> None:
        if not model:
            raise ConfigError("The model's name is empty. Write openai:NAME, e.g. openai:gpt-4o.")
        self.model, self.config = model, config or OpenAIConfig()
        self._learnt: set[str] = set()  # settings that the server was found to do without
        url = self._client().base_url
        server = url.netloc.decode() + url.path.rstrip("/").removesuffix("/v1")
        self._at = "" if server == _DEFAULT_HOST else f"@{server}"

    @property
    def name(self) -> str:
        """`openai:MODEL`, and `@SERVER` unless it is OpenAI."""
        return f"openai:{self.model}{self._at}"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend.answer. Raises ModelError where the server fails all requests alike.

        Issues SamplingWarning if the server does not take the temperature.
        """
        if len(sampling.stop) > _MOST_STOPS:
            raise ConfigError(
                f"stop holds {len(sampling.stop)} strings; a provider takes at most {_MOST_STOPS}."
            )
        return Answers(lambda box: self._serve(prompts, sampling, box))

    def close(self) -> None:
        """Nothing is held between two calls of `answer`."""

    async def _serve(self, prompts: Sequence[Prompt], sampling: Sampling, box: Mailbox) -> None:
        """Deliver (index, answer) of every prompt, or what ended the work; None comes last."""
        most, timeout = self.config.max_concurrency, self.config.timeout

        async def work(batch: Batch, trial: Trial) -> None:
            while (begun := await trial.begin()) is not None:
                index, prompt = begun
                trial.end(index, *await batch.ask(prompt))

        try:
            async with self._client() as client:
                url, patience = str(client.base_url), max(ENOUGH, most)
                trial = Trial(iter(enumerate(prompts)), url, box.deliver, patience)
                batch = Batch(client, self.model, sampling, timeout, self._learnt, box.items.put)
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(most, len(prompts))):
                        workers.create_task(work(batch, trial))
                trial.over()
        except Exception as error:
            box.items.put(_ended_by(error))
        finally:
            box.items.put(None)

    def _client(self) -> openai.AsyncOpenAI:
        timeout = self.config.timeout
        try:
            client = openai.AsyncOpenAI(
                base_url=self.config.base_url,
                api_key=self.config.api_key,
                timeout=openai.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
                max_retries=self.config.max_retries,
            )
        except openai.OpenAIError as error:
            raise _no_key("No API key is set") from error
        except Exception as error:
            raise ConfigError(
                f"No client can be made: {error}. Check base_url, OPENAI_BASE_URL and HTTP_PROXY."
            ) from error
        url, key = client.base_url, client.api_key
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError(f"base_url is '{url}'; it must start with http:// or https://.")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise _no_key("The API key is empty or holds characters that no key has")
        return client


def _no_key(what: str) -> ModelError:
    return ModelError(
        f"{what}. Set OPENAI_API_KEY or pass api_key (any word for a server that asks for none)."
    )


def _ended_by(error: Exception) -> Exception:
    first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    return ModelError(str(first)) if isinstance(first, AllAlikeError) else first
