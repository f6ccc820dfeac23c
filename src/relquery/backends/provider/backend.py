"""A provider, or any server of a provider's form, as a backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from relquery.backends.base import Answers, Backend, Heard, Tally
from relquery.backends.provider.answers import Mailbox, taken
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.sending.asking import Asking
from relquery.backends.provider.sending.budget import Purse, usd_of, warn_if_unpriced
from relquery.backends.provider.sending.counting import Counting
from relquery.backends.provider.sending.dispatch import Dispatch
from relquery.backends.provider.sending.door import Shared
from relquery.backends.provider.sending.limiter import Limiter
from relquery.backends.provider.sending.trial import ENOUGH, AllAlikeError, Trial
from relquery.backends.provider.server import Server
from relquery.backends.provider.wires.providers import OPENAI, Provider
from relquery.errors import ConfigError, ModelError
from relquery.prices.table import known_price
from relquery.prompt import Answer, Prompt, Sampling

_MOST_STOPS = 4


class ProviderBackend(Backend):
    """Asks a server, `max_concurrency` prompts at a time, started in the order given.

    model: the name that the server knows. Raises ModelError without a key, MissingExtraError and
    ConfigError.
    """

    def __init__(
        self, model: str, config: ProviderConfig | None = None, provider: Provider = OPENAI
    ) -> None:
        config = config or ProviderConfig()
        self._server = Server(model, config, provider)
        usd = usd_of(self._server.name, is_flex=config.service_tier is not None)
        budget = config.budget if not isinstance(config.budget, str) else None
        self._shared = Shared(
            Limiter(config.rpm, config.tpm),
            Purse(budget, usd, model, file=config.budget_file),
            Counting(usd),
        )

    @property
    def name(self) -> str:
        """`PROVIDER:MODEL`, and `@SERVER` unless it is the provider's own."""
        return self._server.name

    @property
    def concurrency(self) -> int | None:
        """See Backend."""
        return self._server.config.max_concurrency

    @property
    def requests_per_minute(self) -> float | None:
        """See Backend: the limit given, or the one learnt so far."""
        return self._shared.limiter.requests_per_minute

    @property
    def tokens_per_minute(self) -> float | None:
        """See Backend: the limit given, or the one learnt so far."""
        return self._shared.limiter.tokens_per_minute

    @property
    def price_share(self) -> float:
        """See Backend: of the slow service tier."""
        price = None if self._server.config.service_tier is None else known_price(self.name)
        return 1.0 if price is None or price.flex is None else price.flex

    def known_as(self) -> tuple[str, ...]:
        """See Backend: the server's address counts if `by_server` says so."""
        return self._server.known_as()

    def tally(self) -> Tally:
        """See Backend."""
        # The event loops that ask measure time by this clock.
        waiting = max(0.0, self._shared.limiter.until - time.monotonic())
        return self._shared.counting.tally(waiting)

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend, and `deliver`."""
        return self.deliver(prompts, sampling, _unheard)

    def note_known(self, sampling: Sampling) -> None:
        """See Backend."""
        self._server.useful.add(sampling)

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
        self._server.check(sampling)

    def deliver(self, prompts: Sequence[Prompt], sampling: Sampling, heard: Heard) -> Answers:
        """See Backend. Raises ModelError where the server fails all requests alike, and
        BudgetError.

        Issues SamplingWarning if the server does not take the temperature.
        """
        self.check(sampling)
        warn_if_unpriced(self.name)
        return taken(Mailbox(heard), lambda box: self._serve(prompts, sampling, box))

    async def _serve(self, prompts: Sequence[Prompt], sampling: Sampling, box: Mailbox) -> None:
        """Deliver (index, answer) of every prompt, or what ended the work; None comes last."""
        server = self._server
        try:
            wire = server.wire(len(prompts))
            try:
                patience = max(ENOUGH, server.config.max_concurrency)
                is_settled = sampling in server.useful
                begun = iter(enumerate(prompts))
                trial = Trial(begun, wire.url, box.put, patience, is_settled)
                await server.ask(wire)
                asking = Asking(wire, server, sampling, box.items.put)
                await Dispatch(asking, trial, self._shared, server.config, box.heard).run()
            finally:
                await asyncio.shield(wire.close())
        except Exception as error:
            box.items.put(_ended_by(error))
        finally:
            box.items.put(None)


def _unheard(index: int, answer: Answer) -> None:
    del index, answer


def _ended_by(error: Exception) -> Exception:
    first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    return ModelError(str(first)) if isinstance(first, AllAlikeError) else first
