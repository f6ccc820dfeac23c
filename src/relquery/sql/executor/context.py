"""The models that answer a query's calls, their settings, and what they are paid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from relquery.backends.base import Backend
from relquery.config import PromptForm, QueryConfig
from relquery.ledger import AnswerStore
from relquery.prompt import Answer
from relquery.report import StageReport
from relquery.sql.record import Recording, StageRecord

if TYPE_CHECKING:
    from relquery.prices.price import Price
    from relquery.sql.binder.call import Task
    from relquery.sql.planner.plan import PlannedCall

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """The models that a connection's calls may ask, by the names that they write.

    AI_FILTER('Is it late?', message, model := 'small')  =>  asks the backend `small`
    """

    own: tuple[str, ...]
    """Names of the connection's own model; none where it was given a backend."""
    load: Callable[[str], Backend]
    """Opens a model by its name, or raises what is wrong with it."""
    form_of: Callable[[str], PromptForm]
    """The form of prompts to a backend, by its name, where a call sets none."""
    given: Mapping[str, Backend] = field(default_factory=dict)
    """Backends of the user, by the names that calls have for them."""
    opened: dict[str, Backend] = field(default_factory=dict)
    """Those that `load` has opened."""

    def named(self, name: str) -> Backend | None:
        """A model, opened if it is not yet; None for the connection's own."""
        if name in self.own:
            return None
        if name in self.given:
            return self.given[name]
        if name not in self.opened:
            self.opened[name] = self.load(name)
        return self.opened[name]

    def close(self) -> None:
        """Close those that were opened here."""
        while self.opened:
            self.opened.popitem()[1].close()


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """The backend that answers calls, and its settings. clock: seconds from any start, for reports.

    recording: notes what is sent, if that is asked for. on_answer: told of each answer of the
    backend and what it cost in USD, for progress. record: that of the stage which asks. models:
    those that calls may name; None if they may name none. model: the name that the call has given.
    """

    backend: Backend
    config: QueryConfig
    ledger: AnswerStore | None
    progress: Progress | None
    clock: Callable[[], float]
    recording: Recording | None = None
    on_answer: Callable[[Answer, float | None], None] | None = None
    record: StageRecord | None = None
    models: Models | None = None
    model: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The model names used in the ledger. In memory, what a call has named is enough."""
        is_lasting = self.ledger is not None and self.ledger.path is not None
        return self.backend.known_as() if is_lasting else (self.model or self.backend.name,)

    def of_call(self, task: Task) -> ExecutionContext:
        """The context of a call, with the model that it names, which is opened if it is not yet."""
        backend = None
        if task.model is not None and self.models is not None:
            backend = self.models.named(task.model)
        if backend is None or task.model is None or self.models is None:
            return self
        config = replace(self.config, form=self.models.form_of(backend.name))
        return replace(self, backend=backend, model=task.model, config=config)

    def sent(self, call: PlannedCall) -> tuple[ExecutionContext, PlannedCall]:
        """The context of a call, and the call in the form in which it is sent. One that names the
        connection's own model is as one that names none."""
        context = self.of_call(call.task)
        call = call.in_form(context.config)
        return context, replace(call, task=replace(call.task, model=context.model or None))

    def of_stage(self, name: str, earlier: StageReport | None) -> ExecutionContext:
        """The context of a stage: what is sent is noted there.

        earlier: what the stage has asked before, which its progress counts too. The total grows
        with each batch; how many rows a stage asks in the end is not known before.
        """
        context = self
        if self.recording is not None:
            context = replace(self, record=self.recording.stage(name, self.backend))
        if earlier is None or self.progress is None:
            return context
        progress, before = self.progress, earlier.calls + earlier.ledger_hits
        return replace(
            context,
            progress=lambda name, done, total: progress(name, before + done, before + total),
        )

    def tell(self, name: str, done: int, total: int) -> None:
        """Tell how far a stage is, if anybody listens."""
        if self.progress is not None:
            self.progress(name, done, total)

    def modules(self, call: PlannedCall) -> tuple[int, ...]:
        """Which fields of a call are modules, where the backend has them; opens it if there are."""
        return call.modules if call.modules and self.backend.limits.has_modules else ()


def usd_of(backend: Backend) -> Callable[[Answer], float | None]:
    """Gives what an answer of a backend has cost in USD; None if its model has no known price.

    The backend's name is asked for when the first answer is there, as it may not be open before.
    """

    @cache
    def price() -> Price | None:
        from relquery.prices.table import known_price

        known, part = known_price(backend.name), backend.limits.price_share
        if known is None or part == 1:
            return known
        return known.in_batch if part == known.batch else known.times(part)

    def usd(answer: Answer) -> float | None:
        if (known := price()) is None:
            return None
        of_cache = answer.cached_tokens, answer.written_tokens, answer.written_1h_tokens
        return known.call_usd(answer.prompt_tokens, answer.output_tokens, *of_cache)

    return usd
