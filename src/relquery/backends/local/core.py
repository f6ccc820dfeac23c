"""A model with an engine around it: what jobs and questions about prompts go by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from math import inf
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from relquery.backends.local.asking import Asking
from relquery.backends.local.batches import OpenBatches
from relquery.backends.local.host import Sink, Submission
from relquery.backends.local.sizing import StoreOptions, open_store
from relquery.backends.schemas import arguments_followed, followed
from relquery.config import EngineConfig
from relquery.engine.calibration import Progress, calibrate
from relquery.engine.cost import TRUSTED, Fit, LinearCost
from relquery.engine.executor import Clock, RealClock
from relquery.engine.loop import Loop
from relquery.engine.requests.labels import Normalization
from relquery.engine.requests.pieces import PLAIN, Adapter, Chain, Placing
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy, needs_cost
from relquery.engine.step.answer import failed
from relquery.engine.step.shelf import States
from relquery.errors import SHORTEN, ConfigError, RequestError, unknown
from relquery.prompt import Blank, Exchange, Nest, Prompt, Sampling, Span
from relquery.tools import CallForm, ToolCall, ToolResult, Tools

if TYPE_CHECKING:
    from relquery.backends.local.sizing import Sizing
    from relquery.model.served import ServedModel
    from relquery.model.text.render import Renderer

T = TypeVar("T")
_AT_ONCE = 4096  # prompts that are rendered together, and in memory at one time


class LoadedEngine:
    """An EngineHost but for its questions, in the thread of who uses it. Not thread-safe.

    cost: what steps cost on this machine, measured where the policy asks for it and none is given.
    store: where states of modules are kept beside the cache; None for nowhere. owns_model: whether
    the model is closed with it. adapter: the name of the one that is used where a call names none;
    "" for none.
    """

    closed = False

    def __init__(
        self,
        model: ServedModel,
        config: EngineConfig | None = None,
        cost: LinearCost | None = None,
        sizing: Sizing | None = None,
        store: StoreOptions | None = None,
        *,
        owns_model: bool = False,
        adapter: str = "",
    ) -> None:
        from relquery.model.grammar import Grammars
        from relquery.model.text.render import Renderer

        self.config = config = config or EngineConfig()
        self.model, self._renderer = model, Renderer(model.tokenizer)
        self._owns_model, self._usual_adapter = owns_model, adapter
        self.grammars = Grammars(
            model.tokenizer, model.vocabulary, model.end, followed, arguments_followed
        )
        self._slots = config.cache_tokens // config.block_size * config.block_size
        self._executor = model.executor(config, self._slots, self._busy_since)
        self.sizing = sizing
        """How a budget of memory is used; None where none was given."""
        if cost is None and needs_cost(config):
            cost = self._measure_in_haste().cost
        self.cost = cost
        """What steps cost, as given or measured; None where nothing asks for it."""
        policy = make_policy(config.policy, PolicySettings.of(config, cost))
        states = None if store is None else self._states(store)
        self.engine = Loop(self._executor, config, RealClock(), policy, cost, states)
        self.batches = OpenBatches(self.engine)
        """The jobs that are open: to be served by steps, or cancelled."""

    @property
    def clock(self) -> Clock:
        """The engine's."""
        return self.engine.clock

    @property
    def runs_in(self) -> str:
        """The forward pass that runs, and why if it is not relquery's own."""
        return self.model.runs_in

    @property
    def call_form(self) -> CallForm:
        """How the model writes calls of tools."""
        return self._renderer.call_form

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of those that a call can choose."""
        return tuple(self.model.adapters)

    @cached_property
    def fingerprint(self) -> str:
        """Tells the model's weights from all others."""
        return self.model.fingerprint()

    def fingerprint_with(self, adapter: str) -> str:
        """The same for an adapter on it."""
        used = self.find_adapter(adapter)
        return f"{self.fingerprint}+{used.key.hex()}" if used.number else self.fingerprint

    # As an EngineHost

    def submit(self, submission: Submission, sink: Sink, arrival: float | None = None) -> bool:
        """Queue a job; False if it is closed. arrival: see Loop.submit. Raises ConfigError."""
        if self.closed:
            return False
        asked, tenant = submission, submission.tenant
        asking = self.asking(asked.sampling, asked.scored, tenant, asked.adapter)
        rendered = self._rendered(asked.prompts, tenant)
        self.batches.submit(asking, rendered, submission, sink, arrival)
        return True

    def cancel(self, sink: Sink) -> bool:
        return not self.closed and self.batches.cancel(sink)

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        """The next thing in a queue that steps fill, which are run here."""
        while bell.empty():
            if until is not None and self.clock.now() >= until:
                raise TimeoutError
            self.batches.step()
        return bell.get()

    # What jobs and questions go by

    def render(
        self, prompts: Sequence[Prompt], tenant: str | None = None
    ) -> list[Chain | RequestError]:
        """Prompts as tokens. tenant: who sends them; None where only a question is asked."""
        self._renderer.share_with(self._owner(tenant))
        return _render_each(self._renderer, self.model.vocabulary, self.model.context, prompts)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._renderer.decode(tokens)

    def asking(
        self,
        sampling: Sampling,
        scored: Normalization | None = None,
        tenant: str | None = None,
        adapter: str = "",
    ) -> Asking:
        """How prompts are asked. Raises ConfigError for what cannot be."""
        grammar, used, owner = None, self.find_adapter(adapter), self._owner(tenant)
        if sampling.schema is not None:
            grammar = self.grammars.of(sampling.schema, owner)
        elif sampling.grammar is not None:
            grammar = self.grammars.of_lark(sampling.grammar, owner)
        elif sampling.tools is not None:
            grammar = self.grammars.of_tools(sampling.tools, self.call_form, owner)
        if sampling.scored and scored is None:
            scored = "branch"
        return Asking(self.model, self._renderer, self.placing, sampling, scored, grammar, used)

    def find_adapter(self, name: str) -> Adapter:
        """The adapter of a call. Raises ConfigError."""
        name = name or self._usual_adapter
        if not name:
            return PLAIN
        known = self.model.adapters
        if name not in known:
            raise ConfigError(unknown("adapter", name, known, of=f"model '{self.model.name}'"))
        return known[name]

    @property
    def placing(self) -> Placing:
        """Whether spans are reused at other positions."""
        return "chain" if self.model.is_relocatable else "bound"

    def _rendered(self, prompts: Sequence[Prompt], tenant: str) -> Iterator[Chain | RequestError]:
        """Prompts as tokens, without holding all that are built when they are read."""
        for start in range(0, len(prompts), _AT_ONCE):
            yield from self.render(list(prompts[start : start + _AT_ONCE]), tenant)

    def _owner(self, tenant: str | None) -> str | None:
        """Whose pieces of text and schemas are read once; None for nobody's."""
        return "" if self.config.share_prefixes else tenant

    def calibrate(self, *, seed: int = 0, progress: Progress | None = None) -> Fit:
        """Measure what steps cost on this machine, and fit the linear cost model to them.

        Empties the cache. progress: called with ("batches", timed so far, in all). Raises
        ConfigError while requests are open, and where the cache is too small for it.
        """
        engine = self.engine
        if self.model.is_simulated:
            raise ConfigError(
                f"'{self.model.name}' is simulated, so there is nothing to measure: its steps "
                "take what its machine's cost model says. Calibrate a model that is loaded."
            )
        if engine.waiting or engine.running:
            raise ConfigError("Requests are still running; calibrate before or after them.")
        engine.pool.evict(engine.pool.total)
        return self._timed(calibrate, longest=self.model.context, seed=seed, progress=progress)

    def close(self) -> None:
        """Cancel what is open, and free the model and the KV cache; a second time does nothing."""
        if self.closed:
            return
        self.batches.close()
        self._executor.close()
        if self._owns_model:
            self.model.close()
        vars(self).clear()
        self.closed = True

    def _busy_since(self) -> float:
        """When the first of the open requests arrived, on the engine's clock."""
        requests = [*self.engine.running, *islice(self.engine.waiting, 1)]
        return min((request.arrival for request in requests), default=-inf)

    def _measure_in_haste(self) -> Fit:
        """Once more where the first fit predicts badly: something else ran meanwhile."""
        fit = self._timed(calibrate, longest=self.model.context, quick=True)
        if fit.r2 >= TRUSTED:
            return fit
        again = self._timed(calibrate, longest=self.model.context, quick=True)
        return max(fit, again, key=lambda each: each.r2)

    def _timed(self, measure: Callable[..., T], **more: Any) -> T:
        """What is measured with this model and cache."""
        config = replace(self.config, cache_tokens=self._slots)
        vocabulary = self.model.vocabulary
        return measure(self._executor, config, RealClock(), vocabulary=vocabulary, **more)

    def _states(self, store: StoreOptions) -> States:
        names: tuple[object, ...] = ()
        if store.folder is not None:  # the first takes long for a large model
            names = (self.fingerprint_with(""), self.model.version, self.model.dtype)
        return open_store(self._executor, store, (names, self.config.block_size))


def _render_each(
    renderer: Renderer, vocabulary: int, context: int, prompts: Sequence[Prompt]
) -> list[Chain | RequestError]:
    """Each prompt's tokens, or why it has none.

    vocabulary: token ids that spans bring along are below it. context: positions of the model; what
    is far beyond is refused before it is cut into tokens, which takes a hundred times its memory.
    """
    try:
        for prompt in prompts:
            _check_length(prompt, renderer, context)
            _check([span for span in prompt if not renderer.knows(span)], vocabulary)
        return list(renderer.render(prompts))
    except Exception as error:
        if len(prompts) == 1:
            return [error if isinstance(error, RequestError) else RequestError(failed(error))]
    # Those before and after the one that is wrong are still tokenised together, which is faster.
    half = len(prompts) // 2
    return [
        *_render_each(renderer, vocabulary, context, prompts[:half]),
        *_render_each(renderer, vocabulary, context, prompts[half:]),
    ]


def _check_length(prompt: Sequence[Span], renderer: Renderer, context: int) -> None:
    """Raise RequestError for a prompt that cannot have less tokens than the context."""
    most = context * renderer.longest
    size = sum(map(_characters, prompt))
    if size > most:
        raise RequestError(
            f"The prompt has {size:,} characters, far more than the model's context of {context:,} "
            f"tokens. {SHORTEN}"
        )


def _characters(span: Span) -> int:
    match span.content:
        case str(text):
            return len(text)
        case Exchange(prompt=inner) | Nest(spans=inner):
            return sum(map(_characters, inner))
        case ToolCall(arguments=text) | ToolResult(text=text):
            return len(text)
        case Tools(functions):
            return sum(len(each.parameters) for each in functions)
    return 0


def _check(prompt: Sequence[Span], vocabulary: int) -> None:
    """Raise RequestError for content that would break the tokenizer or the step of all."""
    for span in prompt:
        position = span.position
        if position is not None and not (type(position) is int and position >= 0):
            raise RequestError(
                f"A span has the position {position!r}; it must be an int from 0 on."
            )
        match span.content:
            case str(text) | ToolResult(text=text):
                try:
                    text.encode()
                except UnicodeEncodeError as error:
                    raise RequestError(f"The prompt is not valid Unicode text: {error}.") from error
            case Exchange(prompt=inner, output=ids):
                _check(inner, vocabulary)
                _check_ids(ids, vocabulary)
            case Nest(spans=inner):
                _check(inner, vocabulary)
            case Blank(tokens=int(count)):
                if count < 0:
                    raise RequestError(f"A Blank has {count} tokens; it must have at least 0.")
            case Blank(tokens=tuple(ids)) | tuple(ids):
                _check_ids(ids, vocabulary)


def _check_ids(ids: tuple[int, ...], vocabulary: int) -> None:
    for token in ids:
        if not (isinstance(token, (int, np.integer)) and 0 <= token < vocabulary):
            raise RequestError(
                f"The prompt contains the token id {token!r}; this model's ids range from 0 to "
                f"{vocabulary - 1}."
            )
