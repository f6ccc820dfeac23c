"""A provider's batches as a backend; and how far the batches in a file are, for those who did not
submit them just now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from relquery.backends.base import Limits
from relquery.backends.provider.backend import AnswerQueue, ProviderBackend
from relquery.backends.provider.batch_apis import AnthropicBatches, BatchApi, OpenAIBatches
from relquery.backends.provider.batch_jobs import BatchJob, BatchStore
from relquery.backends.provider.batch_run import BatchRun
from relquery.backends.provider.budget import Usd, usd_of
from relquery.backends.provider.client import ProviderClient
from relquery.backends.provider.codec import RequestCodec
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.providers import ANTHROPIC, GEMINI, PROVIDERS, Provider
from relquery.backends.provider.server import ProviderServer
from relquery.backends.wires.errors import ProviderError
from relquery.errors import ConfigError, ModelError
from relquery.prices.table import known_price
from relquery.prompt import Prompt, Sampling

_SHARE = 0.5
"""Of the price of live calls, for a model whose own share is not known."""


class BatchBackend(ProviderBackend):
    """A backend that submits prompts as batches, and finds those that were submitted before.

    model: the name that the server knows. Raises ModelError without a key, MissingExtraError and
    ConfigError; and PendingError where batches are not to be waited for.
    """

    def __init__(self, model: str, config: ProviderConfig, provider: Provider) -> None:
        if provider is GEMINI:
            raise ConfigError(
                "Batches are for openai: and anthropic: models, and this is a gemini: one. "
                "Leave --batch out, or batch=True in Python."
            )
        if config.batches is None:
            raise ConfigError("batches is missing: the file in which batches are written down.")
        super().__init__(model, replace(config, rpm=None, tpm=None), provider)
        self._store = BatchStore.open(config.batches)

    @property
    def limits(self) -> Limits:
        """No concurrency: all are submitted at once."""
        price = known_price(self._server.name)
        share = _SHARE if price is None or price.batch is None else price.batch
        return Limits(price_share=share)

    def _usd(self) -> Usd | None:
        return usd_of(self._server.name, self.limits.price_share)

    async def _ask(
        self,
        client: ProviderClient,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        queue: AnswerQueue,
    ) -> None:
        server = self._server
        held = replace(sampling, told=False)  # nothing is asked twice in a batch
        await BatchRun(
            batch_api(server, client),
            RequestCodec(client, server, held, queue.items.put),
            self._store,
            self._shared,
            queue.deliver,
            waits=server.config.batch != "submit",
            keeps=sampling.temperature == 0 or sampling.seed is not None,
        ).run(prompts)


def batch_api(server: ProviderServer, client: ProviderClient) -> BatchApi:
    """The batch API of a server. client: its own."""
    kind = AnthropicBatches if server.provider is ANTHROPIC else OpenAIBatches
    return kind(client)


@dataclass(frozen=True, slots=True)
class Shown:
    """One batch. done: requests with a result; None where the provider was not asked.

    not_asked: the server, where its address is needed to ask it. is_cancelled: by this look at it.
    """

    model: str
    remote: str | None
    begun: float
    size: int
    state: str
    done: int | None = None
    not_asked: str | None = None
    is_cancelled: bool = False


def shown_batches(path: Path, base_url: str | None, *, cancel: bool) -> list[Shown]:
    """All batches in a file, the oldest first. cancel: those that run.

    base_url: of the server, for batches of another one than the provider's own. Raises ModelError
    and ConfigError.
    """
    return [
        asyncio.run(_shown(job, base_url, cancel=cancel)) for job in BatchStore.open(path).all()
    ]


def forget_batch(path: Path, remote: str) -> int:
    """Forget a batch by the provider's id, so that its requests may be submitted again.

    Returns how many they are. Raises ConfigError if the file has no such batch.
    """
    store = BatchStore.open(path)
    batch = next((job for job in store.all() if job.remote == remote), None)
    if batch is None:
        raise ConfigError(f"{path} has no batch '{remote}'. `relquery batches {path}` lists them.")
    store.forget(batch)
    return batch.size


async def _shown(job: BatchJob, base_url: str | None, *, cancel: bool) -> Shown:
    name, _, endpoint = job.server.partition("@")
    provider, _, model = name.partition(":")
    shown = partial(Shown, job.server, job.remote, job.begun, job.size)
    if job.state == "ended" or job.remote is None:
        return shown("to be found" if job.remote is None else job.state)
    if endpoint and base_url is None:
        return shown("not asked", not_asked=endpoint)
    config = ProviderConfig(base_url=base_url if endpoint else None)
    server = ProviderServer(model, config, PROVIDERS[provider])
    async with aclosing(server.client()) as client:
        api = batch_api(server, client)
        try:
            standing = await api.standing(job.remote)
            is_cancelled = cancel and standing.state == "running"
            if is_cancelled:
                await api.cancel(job.remote)
                standing = await api.standing(job.remote)
        except ProviderError as error:
            if error.status == 404:
                return shown("unknown there")
            said = f"The batch {job.remote} cannot be looked at. {error.words}"
            raise ModelError(said) from error
    state = "cancelled" if is_cancelled else standing.state
    return shown(state, standing.done, is_cancelled=is_cancelled)
