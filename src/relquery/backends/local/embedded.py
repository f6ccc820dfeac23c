"""The engine on this machine as a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from relquery.arrays import TokenIds
from relquery.backends.base import Answers, Backend, Insight, Limits, SpanState
from relquery.backends.local.asking import Asking
from relquery.backends.local.batches import Batch, Batches, Sink
from relquery.backends.local.rendering import check_prepared, render_each, to_prepare
from relquery.backends.local.sizing import StoreOptions, open_store
from relquery.backends.schemas import arguments_followed, followed
from relquery.backends.scoring import Prior, Scores, score
from relquery.config import EngineConfig
from relquery.engine.calibration import Progress, calibrate
from relquery.engine.cost import TRUSTED, Fit, LinearCost
from relquery.engine.executor import RealClock
from relquery.engine.loop import Loop
from relquery.engine.requests.declared import Declared
from relquery.engine.requests.labels import Normalization
from relquery.engine.requests.pieces import PLAIN, Adapter, Chain, Placing, depths
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy, needs_cost
from relquery.engine.scheduling.reuse import cached_tokens
from relquery.engine.step.shelf import States
from relquery.errors import ConfigError, RequestError, unknown
from relquery.prompt import Answer, Prompt, Sampling, Span
from relquery.tools import CallForm

if TYPE_CHECKING:
    from relquery.backends.local.sizing import Sizing
    from relquery.model.served import ServedModel

T = TypeVar("T")
PREVIEW_TOKENS = 12
_AT_ONCE = 4096  # prompts that are rendered together, and in memory at one time


class EmbeddedBackend(Backend, Insight):
    """Answers prompts on this machine. Requests of one call form one relQuery. Not thread-safe.

    cost: what steps cost on this machine, measured where the policy asks for it and none is given.
    store: where states of modules are kept beside the cache; None for nowhere. owns_model: whether
    the model is closed with it. adapter: the name of the one that is used where a call names none;
    "" for none.
    """

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
        self._model, self._renderer = model, Renderer(model.tokenizer)
        self._owns_model, self._adapter = owns_model, adapter
        self._grammars = Grammars(
            model.tokenizer, model.vocabulary, model.end, followed, arguments_followed
        )
        self._fingerprint: str | None = None
        self._token_bytes: int | None = None
        self._slots = config.cache_tokens // config.block_size * config.block_size
        self._executor = model.executor(config, self._slots, self._busy_since)
        self.sizing = sizing
        """How a budget of memory is used; None where none was given."""
        if cost is None and needs_cost(config):
            cost = self._measure_in_haste().cost
        self.cost = cost
        """What steps cost, as given or measured; None where nothing asks for it."""
        policy = make_policy(config.policy, Settings.of(config, cost))
        states = None if store is None else self._states(store)
        self.engine = Loop(self._executor, config, RealClock(), policy, cost, states)
        self.batches = Batches(self.engine)
        """What `submit` has queued: to be served by steps, or cancelled."""

    @property
    def runs_in(self) -> str:
        """The forward pass that runs, and why if it is not relquery's own."""
        return self._model.runs_in

    @property
    def call_form(self) -> CallForm:
        """How the model writes calls of tools."""
        return self._renderer.call_form

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of those that a call can choose."""
        return tuple(self._model.adapters)

    @property
    def name(self) -> str:
        """The model's name and version, in short."""
        used = self._find_adapter("")
        return f"{self._model.name}@{self._model.version}{used.key.hex()[:8]}"

    def known_as(self, adapter: str = "") -> tuple[str, ...]:
        """By all of its weights, wherever they lie, and by all of an adapter's.

        Older ledgers know a model by its name and version, of which other weights may have the
        same; not so where the weights follow from the name.
        """
        if self._fingerprint is None:
            self._fingerprint = self._model.fingerprint()
        used = self._find_adapter(adapter)
        if used.number:
            return (f"{self._fingerprint}+{used.key.hex()}",)
        is_told_by_name = self._model.name == "demo" or self._model.name.startswith("random:")
        return (self._fingerprint, self.name) if is_told_by_name else (self._fingerprint,)

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend.answer. Prompts are served in the order given.

        All are submitted at once, before the first answer is asked for, so that several calls
        run in the same steps.
        """
        served = self.batches.serve(self.submit(prompts, sampling))
        next(served)
        return cast(Answers, served)

    def score(
        self,
        prompts: Iterable[str | Prompt],
        labels: Sequence[str],
        *,
        normalization: Normalization = "joint",
        temperature: float = 1.0,
        prior: Prior | None = None,
    ) -> list[Scores]:
        """How likely each label is as the answer to each prompt. See Engine.score."""

        def ask(found: Sequence[Prompt], sampling: Sampling, scored: Normalization) -> list[Answer]:
            served = self.batches.serve(self.submit(found, sampling, scored=scored))
            answers = dict(each for each in served if each is not None)
            return [answers[index] for index in range(len(found))]

        return score(ask, prompts, labels, normalization, temperature, prior)

    def submit(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        tenant: str = "",
        arrival: float | None = None,
        scored: Normalization | None = None,
        streamed: bool = False,
        declared: Declared | None = None,
        adapter: str = "",
        sink: Sink | None = None,
    ) -> Batch:
        """Queue all prompts as one relQuery; see Batches.submit, and for `scored` Asking.

        Raises ConfigError for an adapter that the model does not have.
        """
        asking = self._asking(sampling, scored, tenant, adapter)
        rendered = self._rendered(prompts, tenant)
        return self.batches.submit(asking, rendered, tenant, arrival, streamed, declared, sink)

    def _rendered(self, prompts: Sequence[Prompt], tenant: str) -> Iterator[Chain | RequestError]:
        """See render_each. Prompts that are built when they are read are not all held."""
        for start in range(0, len(prompts), _AT_ONCE):
            some = list(prompts[start : start + _AT_ONCE])
            yield from self._render(some, tenant)

    def _render(
        self, prompts: Sequence[Prompt], tenant: str | None = None
    ) -> list[Chain | RequestError]:
        """tenant: who sends them; None where only a question about them is asked."""
        model = self._model
        self._renderer.share_with(self._owner(tenant))
        return render_each(self._renderer, model.vocabulary, model.context, prompts)

    def _owner(self, tenant: str | None) -> str | None:
        """Whose pieces of text and schemas are read once; None for nobody's."""
        return "" if self.config.share_prefixes else tenant

    def check(self, sampling: Sampling) -> None:
        self._asking(sampling)

    def _asking(
        self,
        sampling: Sampling,
        scored: Normalization | None = None,
        tenant: str | None = None,
        adapter: str = "",
    ) -> Asking:
        grammar, used = None, self._find_adapter(adapter)
        if sampling.schema is not None:
            grammar = self._grammars.of(sampling.schema, self._owner(tenant))
        elif sampling.grammar is not None:
            grammar = self._grammars.of_lark(sampling.grammar, self._owner(tenant))
        elif sampling.tools is not None:
            owner = self._owner(tenant)
            grammar = self._grammars.of_tools(sampling.tools, self.call_form, owner)
        if sampling.scored and scored is None:
            scored = "branch"
        return Asking(self._model, self._renderer, self._placing, sampling, scored, grammar, used)

    def _find_adapter(self, name: str) -> Adapter:
        """The adapter of a call. Raises ConfigError."""
        name = name or self._adapter
        if not name:
            return PLAIN
        known = self._model.adapters
        if name not in known:
            raise ConfigError(unknown("adapter", name, known, of=f"model '{self._model.name}'"))
        return known[name]

    def runs(self, prompt: Prompt) -> list[TokenIds]:
        (chain,) = self._render([prompt])
        if isinstance(chain, RequestError):
            raise chain
        found: list[list[TokenIds]] = [[]]
        for part in chain.parts:
            if isinstance(part, Chain):
                found.append([])
            elif isinstance(part, np.ndarray):
                found[-1].append(part)
        nothing = np.empty(0, np.int32)
        return [run[0] if len(run) == 1 else np.concatenate([nothing, *run]) for run in found]

    def spell(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes that each token stands for in an answer."""
        return self._grammars.spell(tokens)

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """See Insight. Later prompts find the states as long as the cache keeps them."""
        whole, sampling = to_prepare(prompts)
        check_prepared([answer for _, answer in self.answer(whole, sampling)])

    def share(self, prompts: Sequence[Prompt], adapter: str = "") -> None:
        """Let all tenants share the states of the prompts' independent spans. See Commons."""
        for chain in self._render(prompts):
            if isinstance(chain, Chain):
                self.engine.commons.register(self._unasked(chain, adapter))

    def inspect(self, prompt: Prompt, tenant: str = "", adapter: str = "") -> tuple[SpanState, ...]:
        """See Insight. tenant: who would send it, and may read only some states."""
        (chain,) = self._render([prompt])
        if isinstance(chain, RequestError):
            raise chain
        request = self._unasked(chain, adapter)
        self.engine.commons.claim(request, tenant)
        beside = [self.engine.shelf.where(request, i) for i in range(len(request.pieces))]
        there = cached_tokens(request, self.config, self.engine.pool)
        self.engine.fetch(request)  # only then is it known whether what is beside is whole
        served = cached_tokens(request, self.config, self.engine.pool)
        sources = [
            source if after > before else "cache" if after else ""
            for source, before, after in zip(beside, there, served, strict=True)
        ]
        return tuple(
            SpanState(
                preview=self._renderer.decode(piece.tokens[:PREVIEW_TOKENS].tolist()),
                tokens=len(piece.tokens),
                cached=cached,
                depth=depth,
                span=piece.chain,
                source=source,
            )
            for piece, cached, depth, source in zip(
                request.pieces, served, depths(request.pieces), sources, strict=True
            )
            if len(piece.tokens)
        )

    def _unasked(self, chain: Chain, adapter: str) -> Request:
        """A request that is looked at, and not served."""
        used = self._find_adapter(adapter)
        return Request(-1, chain, 1, adapter=used, placing=self._placing)

    def one_pass(self, sampling: Sampling) -> bool:
        example = self._example(sampling)
        return example.prefill_only or example.drafting

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int]:
        asking = self._asking(sampling)
        rendered = self._render(prompts)
        return [self._tokens(asking, each) for each in rendered]

    def predict(
        self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
    ) -> float | None:
        """See Insight. None where it is not known what steps cost."""
        if self.cost is None:
            return None
        example, total, count = self._example(sampling), sum(prompt_tokens), len(prompt_tokens)
        steps = -(-(total - cached) // self.config.max_num_batched_tokens)
        seconds = self.cost.seconds(total - cached, 0, cached)
        seconds += max(0, steps - 1) * self.cost.prefill_intercept
        decodes = 0 if example.prefill_only else example.max_tokens - 1
        rounds = -(-count // self.config.max_num_seqs)
        further = max(0, rounds - 1) * self.cost.decode_intercept
        return seconds + decodes * (self.cost.seconds(0, count, total) + further)

    def _tokens(self, asking: Asking, prompt: Chain | RequestError) -> int:
        """Of a prompt; 0 if it would be refused."""
        if isinstance(prompt, RequestError):
            return 0
        request = asking.request(-1, -1, prompt)
        try:
            asking.limit(request)
            self.engine.room(request)
        except RequestError:
            return 0
        return request.prompt_tokens

    def _example(self, sampling: Sampling) -> Request:
        """A request of one token with this sampling, to be looked at."""
        asking = self._asking(sampling)
        return asking.request(-1, -1, Chain((np.zeros(1, np.int32),)))

    def reserve(self) -> None:
        """Take the memory of the whole KV cache now; otherwise it is taken as the cache fills.

        That costs up to a second per GiB, which a service would rather spend before the first
        request. Runs one request.
        """
        # Two tokens: the states of a prompt whose answer has one may never enter the cache.
        for _ in self.answer([(Span("."),)], Sampling(max_tokens=2)):
            pass
        self._executor.reserve()

    def calibrate(self, *, seed: int = 0, progress: Progress | None = None) -> Fit:
        """Measure what steps cost on this machine, and fit the linear cost model to them.

        Empties the cache. progress: called with ("batches", timed so far, in all). Raises
        ConfigError while requests are open, and where the cache is too small for it.
        """
        self._make_way()
        return self._timed(calibrate, longest=self._model.context, seed=seed, progress=progress)

    def close(self) -> None:
        """Cancel what is open, and free the model and the KV cache; a second time does nothing."""
        if vars(self):
            self.batches.close()
            self._executor.close()
            if self._owns_model:
                self._model.close()
            vars(self).clear()

    def _busy_since(self) -> float:
        """When the first of the open requests arrived, on the engine's clock."""
        requests = [*self.engine.running, *islice(self.engine.waiting, 1)]
        return min((request.arrival for request in requests), default=-inf)

    def _make_way(self) -> None:
        """Empty the cache. Raises ConfigError while requests are open."""
        engine = self.engine
        if self._model.is_simulated:
            raise ConfigError(
                f"'{self._model.name}' is simulated, so there is nothing to measure: its steps "
                "take what its machine's cost model says. Calibrate a model that is loaded."
            )
        if engine.waiting or engine.running:
            raise ConfigError("Requests are still running; calibrate before or after them.")
        engine.pool.evict(engine.pool.total)

    def _measure_in_haste(self) -> Fit:
        """Once more where the first fit predicts badly: something else ran meanwhile."""
        fit = self._timed(calibrate, longest=self._model.context, quick=True)
        if fit.r2 >= TRUSTED:
            return fit
        again = self._timed(calibrate, longest=self._model.context, quick=True)
        return max(fit, again, key=lambda each: each.r2)

    def _timed(self, measure: Callable[..., T], **more: Any) -> T:
        """What is measured with this model and cache."""
        config = replace(self.config, cache_tokens=self._slots)
        vocabulary = self._model.vocabulary
        return measure(self._executor, config, RealClock(), vocabulary=vocabulary, **more)

    @property
    def limits(self) -> Limits:
        config = self.config
        return Limits(
            context=self._model.context,
            cache_tokens=config.cache_tokens,
            block_tokens=config.block_size if config.prefix_caching else 0,
            has_modules=True,
        )

    @property
    def insight(self) -> Insight:
        return self

    def token_bytes(self) -> int | None:
        if self._token_bytes is None:
            list(self.answer([(Span("."),)], Sampling(max_tokens=2)))  # it tells when it runs
            self._token_bytes = self._executor.slot_bytes
        return self._token_bytes

    def _states(self, store: StoreOptions) -> States:
        names: tuple[object, ...] = ()
        if store.folder is not None:  # the first takes long for a large model
            names = (*self.known_as()[:1], self._model.version, self._model.dtype)
        return open_store(self._executor, store, (names, self.config.block_size))

    @property
    def _placing(self) -> Placing:
        if not self._model.is_relocatable:
            return "bound"
        return "chain"
