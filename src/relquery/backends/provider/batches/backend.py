"""A provider's batches as a backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from relquery.backends.base import Answers, Backend, Heard, Tally
from relquery.backends.provider.answers import Mailbox, taken
from relquery.backends.provider.batches.anthropic import AnthropicBatches
from relquery.backends.provider.batches.api import BatchApi
from relquery.backends.provider.batches.openai import OpenAIBatches
from relquery.backends.provider.batches.run import Batching
from relquery.backends.provider.batches.store import Store
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.sending.asking import Asking
from relquery.backends.provider.sending.budget import Purse, usd_of, warn_if_unpriced
from relquery.backends.provider.sending.counting import Counting
from relquery.backends.provider.sending.door import Shared
from relquery.backends.provider.sending.limiter import Limiter
from relquery.backends.provider.server import Server
from relquery.backends.provider.wires.providers import ANTHROPIC, GEMINI, Provider, anthropic_client
from relquery.errors import ConfigError
from relquery.prices.table import known_price
from relquery.prompt import Answer, Prompt, Sampling

_SHARE = 0.5
"""Of the price of live calls, for a model whose own share is not known."""
_ENDPOINTS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}


class BatchBackend(Backend):
    """Submits prompts as batches, and finds those that were submitted before.

    model: the name that the server knows. Raises ModelError without a key, MissingExtraError and
    ConfigError.
    """

    def __init__(self, model: str, config: ProviderConfig, provider: Provider) -> None:
        if provider is GEMINI:
            raise ConfigError(
                "Batches are for openai: and anthropic: models, and this is a gemini: one. "
                "Leave --batch out, or batch=True in Python."
            )
        if config.batches is None:
            raise ConfigError("batches is missing: the file in which batches are written down.")
        self._server, self._store = Server(model, config, provider), Store.open(config.batches)
        usd = usd_of(self._server.name, self.price_share)
        budget = config.budget if not isinstance(config.budget, str) else None
        self._shared = Shared(
            Limiter(), Purse(budget, usd, model, file=config.budget_file), Counting(usd)
        )

    @property
    def name(self) -> str:
        """`PROVIDER:MODEL`, and `@SERVER` unless it is the provider's own."""
        return self._server.name

    @property
    def price_share(self) -> float:
        """See Backend."""
        price = known_price(self._server.name)
        return _SHARE if price is None or price.batch is None else price.batch

    def known_as(self) -> tuple[str, ...]:
        """See Backend."""
        return self._server.known_as()

    def tally(self) -> Tally:
        """See Backend."""
        return self._shared.counting.tally(0.0)

    def check(self, sampling: Sampling) -> None:
        """See Backend."""
        self._server.check(sampling)

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend, and `deliver`."""
        return self.deliver(prompts, sampling, _unheard)

    def deliver(self, prompts: Sequence[Prompt], sampling: Sampling, heard: Heard) -> Answers:
        """See Backend. Raises ModelError where the provider takes no batch, BudgetError, and
        PendingError if batches are not to be waited for.
        """
        self.check(sampling)
        warn_if_unpriced(self.name)
        return taken(Mailbox(heard), lambda box: self._serve(prompts, sampling, box))

    async def _serve(self, prompts: Sequence[Prompt], sampling: Sampling, box: Mailbox) -> None:
        """Deliver (index, answer) of every prompt, or what ended the work; None comes last."""
        server = self._server
        try:
            wire, api = server.wire(), self._api()
            try:
                await server.ask(wire)
                held = replace(sampling, told=False)  # nothing is asked twice in a batch
                await Batching(
                    api,
                    Asking(wire, server, held, box.items.put),
                    self._store,
                    self._shared,
                    box.deliver,
                    waits=server.config.batch != "submit",
                    keeps=sampling.temperature == 0 or sampling.seed is not None,
                ).run(prompts)
            finally:
                await asyncio.shield(asyncio.gather(api.close(), wire.close()))
        except Exception as error:
            box.items.put(error)
        finally:
            box.items.put(None)

    def _api(self) -> BatchApi:
        return batch_api(self._server)


def batch_api(server: Server) -> BatchApi:
    """The batch API of a server; to be closed."""
    if server.provider is ANTHROPIC:
        client = anthropic_client(server.provider, server.config, server.config.max_retries)
        return AnthropicBatches(client, server.config.timeout)
    return OpenAIBatches(server.client(), _ENDPOINTS[server.api], server.config.timeout)


def _unheard(index: int, answer: Answer) -> None:
    del index, answer
