"""A budget, of which is set aside what a call may cost at most; and what was sent so far."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from relquery.backends.base import Tally
from relquery.backends.provider.limiter import RequestSize
from relquery.backends.provider.spending import Amount, Spending, shown
from relquery.backends.wires.messages import Messages
from relquery.backends.wires.reply import Usage
from relquery.errors import BudgetError, ConfigError
from relquery.prices.price import Price
from relquery.prices.table import is_sold, known_price, no_price

_HOUR_S = 3600
_MARGIN = 2
"""Times the most by which an answer exceeded its limit that the next one may exceed it."""

_COUNTED = [each.name for each in fields(Tally) if each.name != "waiting"]
_LOG = logging.getLogger("relquery")
_MOST_BYTES, _MANY_WORDS, _PART = 6, 500, 0.75
"""Of a prompt's bytes a token: with more, its words are counted. With so many of them, a server
that has read fewer tokens than this part of them has not read them all."""

Usd = Callable[[Usage], float]
"""USD for a call, by the tokens that it took."""


@dataclass(slots=True)
class CallPrice:
    """The cost of a model's calls, by the price of the hour in which each ends.

    Raises ConfigError for a model without a price.
    """

    model: str
    """As `connect` takes it."""
    in_batch: bool = False
    """Whether calls are sent as a batch."""
    share: float = 1.0
    """Part of the live price, for a batch of a model whose own part is not known."""
    is_flex: bool = False
    """Whether calls are sent in the slow service tier."""
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    _found: tuple[float, Price] | None = None

    def __call__(self, usage: Usage) -> float:
        """USD for a call: what the server says, else by its tokens."""
        if usage.usd is not None:
            return usage.usd
        return self.now.call_usd(
            usage.prompt, usage.output, usage.cached, usage.written, usage.written_1h
        )

    @property
    def now(self) -> Price:
        """The price of this hour."""
        hour = self.clock() // _HOUR_S
        if self._found is None or self._found[0] != hour:
            self._found = hour, self._price(datetime.fromtimestamp(hour * _HOUR_S, UTC))
        return self._found[1]

    def _price(self, moment: datetime) -> Price:
        price = known_price(self.model, moment)
        if price is None:
            raise ConfigError(no_price(self.model))
        if not self.in_batch:
            return price.times(price.flex) if self.is_flex and price.flex else price
        return price.times(self.share) if price.batch is None else price.in_batch

    @property
    def peak(self) -> float:
        """By how many times the dearest hour costs more than this one."""
        return self.now.peak


def usd_of(model: str, share: float | None = None, *, is_flex: bool = False) -> Usd | None:
    """What calls of a model cost; None if its price is not known. model: as `connect` takes it.
    share: of the live price, for batches of a model whose own is not known; None for live calls.
    is_flex: whether these are sent in the slow service tier.
    """
    if known_price(model) is None:
        return None
    if share is None:
        return CallPrice(model, is_flex=is_flex)
    return CallPrice(model, in_batch=True, share=share)


@cache
def warn_if_unpriced(model: str) -> None:
    """Log, once for each name, that a provider's own model has no price. Other servers have none.

    model: as a backend is called.
    """
    if "@" not in model and is_sold(model) and known_price(model) is None:
        _LOG.warning("%s What is spent is not shown in USD.", no_price(model.partition(":")[2]))


@dataclass(slots=True)
class Budget:
    """A budget that all threads share which ask one server.

    Raises ConfigError for USD without a price.
    """

    amount: Amount | None
    """The amount that may be spent; None for no end."""
    usd: Usd | None
    """The cost of calls."""
    model: str
    """The name of the model, for messages."""
    spent: float = 0.0
    beyond_output: int = 0
    """Most tokens by which an answer exceeded what it was allowed: some servers do not count
    reasoning there."""
    beyond_prompt: int = 0
    """Most tokens by which a prompt exceeded its count: some servers add tokens of their own."""
    file: str | Path | None = None
    """The file in which a budget of a day, a month or a ledger is counted."""
    _shared: Spending | None = None
    _held: float = 0.0
    _open: int = 0
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        if self.amount is not None and self._is_of_usd and self.usd is None:
            raise ConfigError(
                f"budget is {self.amount}, but the price of '{self.model}' is not known. Give the "
                "budget in tokens or calls, e.g. '2000000 tokens' or '500 calls', or a price: "
                "`relquery prices --update FILE` adds yours."
            )
        if self.amount is not None and self.amount.per is not None and self.file is not None:
            self._shared = Spending(Path(self.file), self.amount)

    def hold(self, need: RequestSize) -> float | None:
        """Set aside what a call may cost at most; gives it, or None while there is not enough but
        calls under way may give some back. Raises BudgetError if there never is.
        """
        if self.amount is None:
            return 0.0
        most = self._most(need)
        with self._lock:
            held: float | None = most
            if self._shared is not None:
                held = self._shared.take(most)
            elif self.spent + self._held + most > self.amount.number:
                held = None
            if held is not None:
                self._held += most
                self._open += 1
                return held
            if self._open:
                return None
            raise BudgetError(self._words(most))

    @property
    def is_shared(self) -> bool:
        """Whether it is counted in a file, for all processes that use it."""
        return self._shared is not None

    @property
    def is_of_tokens(self) -> bool:
        """Whether what a call takes is known only from its reply."""
        return self.amount is not None and not self._is_of_calls

    @property
    def _is_of_calls(self) -> bool:
        return self.amount is not None and self.amount.unit == "calls"

    def give_back(self, held: float) -> None:
        """A call was not sent, or cost nothing."""
        self._close(held, 0.0)

    def settle(self, held: float, usage: Usage | None, need: RequestSize | None = None) -> None:
        """A call has ended. usage: None if it is not known what it cost: then the most. need: what
        it was expected to take; None if nothing is to be learnt from it.
        """
        if self.amount is None:
            return
        cost = held
        if usage is not None:
            if need is not None:
                self.beyond_output = max(self.beyond_output, usage.output - need.output)
                self.beyond_prompt = max(self.beyond_prompt, usage.prompt - need.prompt)
            if usage.prompt and usage.tells_output:
                cost = self._cost(usage)
        self._close(held, cost)

    def refused(self, held: float) -> None:
        """The server refused a call, which is paid for if calls are counted, and not else."""
        self._close(held, held if self._is_of_calls else 0.0)

    def _close(self, held: float, cost: float) -> None:
        if self.amount is None:
            return
        with self._lock:
            self._open = max(0, self._open - 1)  # another process may have held it
            self._held = self._held - held if self._open else 0.0
            self.spent += cost
            if self._shared is not None:
                self._shared.correct(held, cost)

    def _most(self, need: RequestSize) -> float:
        prompt = need.prompt + self.beyond_prompt
        output = need.output + _MARGIN * self.beyond_output
        hour = prompt if need.keeps_hour else 0
        plain = self._cost(Usage(prompt, 0, output))
        written = self._cost(Usage(prompt, 0, output, prompt, written_1h=hour))
        return max(plain, written) * getattr(self.usd if self._is_of_usd else None, "peak", 1.0)

    def _cost(self, usage: Usage) -> float:
        if self._is_of_calls:
            return 1.0
        if self._is_of_usd and self.usd is not None:
            return self.usd(usage)
        return float(usage.prompt + usage.output)

    @property
    def _is_of_usd(self) -> bool:
        return self.amount is not None and self.amount.unit == "USD"

    def _words(self, most: float) -> str:
        amount = self.amount
        assert amount is not None
        spent = self.spent if self._shared is None else self._shared.spent
        used = shown(spent, amount.unit)
        are = "is" if used.startswith("1 ") else "are"
        next_one = (
            "" if amount.unit == "calls" else f", and one may take {shown(most, amount.unit)}"
        )
        return (
            f"The budget of {amount} has no room for another call: {used} {are} spent{next_one}. "
            "Raise the budget."
        )


@dataclass(slots=True)
class CallCounter:
    """Counted in the threads that ask, and read in any."""

    usd: Usd | None
    _sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    _has_told: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def add(self, **counts: float) -> None:
        """Count calls that are sent, retries among them, and prompts that end without an answer."""
        with self._lock:
            for name, count in counts.items():
                self._sums[name] += count

    def used(self, usage: Usage) -> None:
        """A reply has come."""
        self.add(
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            written_tokens=usage.written,
            output_tokens=usage.output,
            usd=0.0 if self.usd is None else self.usd(usage),
        )
        if usage.contradiction and self._is_new("contradiction"):
            _LOG.warning(
                "The server's count of tokens does not add up: %s. The dearest reading counts.",
                usage.contradiction,
            )

    def tally(self, waiting: float) -> Tally:
        """All so far. waiting: seconds until more is sent."""
        with self._lock:
            told: dict[str, Any] = self._sums | {"waiting": waiting}
        return Tally(**told | ({"usd": None} if self.usd is None else {}))

    def _is_new(self, what: str) -> bool:
        """Whether it was not told of before."""
        with self._lock:
            is_new = what not in self._has_told
            self._has_told.add(what)
        return is_new

    def check_read(self, usage: Usage, need: RequestSize, messages: Messages) -> None:
        """Say, once, that a server has read far less of a prompt than was sent."""
        if not 0 < usage.prompt < need.prompt / _MOST_BYTES:
            return
        words = sum(len(message["content"].split()) for message in messages)
        if words < _MANY_WORDS or usage.prompt > _PART * words or not self._is_new("cut"):
            return
        _LOG.warning(
            "The server has read %s tokens of a prompt of %s words, so its answers are to a part "
            "of it. Raise the server's context: num_ctx or OLLAMA_CONTEXT_LENGTH for Ollama.",
            f"{usage.prompt:,}",
            f"{words:,}",
        )
