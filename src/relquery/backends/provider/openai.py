"""A provider, or any server of the OpenAI chat-completions form, as a backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relquery.backends.base import Answers, Backend, Heard
from relquery.backends.provider.answers import Mailbox, taken
from relquery.backends.provider.batch import Batch
from relquery.backends.provider.server import OpenAIConfig, Server
from relquery.backends.provider.trial import ENOUGH, AllAlikeError, Trial
from relquery.errors import ConfigError, ModelError
from relquery.prompt import Answer, Prompt, Sampling

_MOST_STOPS = 4


class OpenAIBackend(Backend):
    """Asks a server, `max_concurrency` prompts at a time, started in the order given.

    model: the name that the server knows. Raises ModelError without a key, ConfigError.
    """

    def __init__(self, model: str, config: OpenAIConfig | None = None) -> None:
        self._server = Server(model, config or OpenAIConfig())
        self._name = self._server.name

    @property
    def name(self) -> str:
        """`openai:MODEL`, and `@SERVER` unless it is OpenAI."""
        return self._name

    @property
    def concurrency(self) -> int | None:
        """See Backend."""
        return self._server.config.max_concurrency

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend, and `deliver`."""
        return self.deliver(prompts, sampling, _unheard)

    def check(self, sampling: Sampling) -> None:
        """See Backend."""
        if sampling.logprobs is not None:
            raise ConfigError(
                f"logprobs is {sampling.logprobs}; a provider does not tell the token ids that "
                "log-probabilities are given for. Leave it out, or use the embedded engine."
            )
        if len(sampling.stop) > _MOST_STOPS:
            raise ConfigError(
                f"stop has {len(sampling.stop)} strings; a provider accepts at most {_MOST_STOPS}."
            )

    def deliver(self, prompts: Sequence[Prompt], sampling: Sampling, heard: Heard) -> Answers:
        """See Backend. Raises ModelError where the server fails all requests alike.

        Issues SamplingWarning if the server does not take the temperature.
        """
        self.check(sampling)
        return taken(Mailbox(heard), lambda box: self._serve(prompts, sampling, box))

    async def _serve(self, prompts: Sequence[Prompt], sampling: Sampling, box: Mailbox) -> None:
        """Deliver (index, answer) of every prompt, or what ended the work; None comes last."""
        server = self._server
        most = server.config.max_concurrency

        async def work(batch: Batch, trial: Trial) -> None:
            while (begun := await trial.begin()) is not None:
                index, prompt = begun
                trial.end(index, *await batch.ask(prompt))

        try:
            async with server.client() as client:
                url, patience = str(client.base_url), max(ENOUGH, most)
                trial = Trial(iter(enumerate(prompts)), url, box.deliver, patience)
                announced = server.announced(len(prompts))
                batch = Batch(client, server, sampling, box.items.put, announced)
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(most, len(prompts))):
                        workers.create_task(work(batch, trial))
                trial.over()
        except Exception as error:
            box.items.put(_ended_by(error))
        finally:
            box.items.put(None)


def _unheard(index: int, answer: Answer) -> None:
    del index, answer


def _ended_by(error: Exception) -> Exception:
    first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    return ModelError(str(first)) if isinstance(first, AllAlikeError) else first
