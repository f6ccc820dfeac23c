"""The embedded engine as a backend: prompts to requests, finished requests to answers."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from relquery.config import EngineConfig
from relquery.engine.calibrate import calibrate
from relquery.engine.clock import RealClock
from relquery.engine.cost import LinearCost
from relquery.engine.costs import SERVED
from relquery.engine.fit import Fit
from relquery.engine.loop import Loop
from relquery.engine.machines import find_machine
from relquery.engine.pieces import Chain, Placing, own_pieces
from relquery.engine.policies.catalogue import WITHOUT_COST, Settings, make_policy
from relquery.engine.relquery import RelQuery
from relquery.engine.request import Draw, Request
from relquery.engine.schedule import cached_tokens
from relquery.errors import (
    ConfigError,
    MissingExtraError,
    PromptTooLongError,
    RequestError,
    did_you_mean,
)
from relquery.prompt import Answer, Finish, Prompt, Sampling, Span

if TYPE_CHECKING:
    from relquery.model.load import LoadedModel

PREVIEW_TOKENS = 12
_ENGINE_OPTIONS = [field.name for field in fields(EngineConfig)]
_MODEL_OPTIONS = ["dtype", "device", "tokenizer"]
_KNOWN = [*_ENGINE_OPTIONS, *_MODEL_OPTIONS, "cost"]


def load_backend(model: str, **options: Any) -> EmbeddedBackend:
    """Load a model and put an engine around it.

    model: "demo", a Hugging Face name or folder, or "random:layers=8,hidden=256".
    options: fields of EngineConfig; dtype, device, tokenizer (see relquery.model.load); and cost
        (see EmbeddedBackend).
    Raises ModelError, ConfigError, and MissingExtraError without the `local` extra.
    """
    for name in options:
        if name not in _KNOWN:
            raise ConfigError(
                f"'{name}' is not an option of the embedded engine. Options: {', '.join(_KNOWN)}."
                + did_you_mean(name, _KNOWN)
            )
    try:
        from relquery.model.load import load
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"Running the model '{model}' on this machine", "local") from error
    config = EngineConfig(**{k: v for k, v in options.items() if k in _ENGINE_OPTIONS})
    cost = _cost_of(options.get("cost"))  # before the model, which takes long to load
    loaded = load(_resolve(model), **{k: v for k, v in options.items() if k in _MODEL_OPTIONS})
    return EmbeddedBackend(replace(loaded, name=model), config, cost)


@dataclass(frozen=True, slots=True)
class SpanState:
    """A piece of a prompt: how its text begins, its tokens, and how many the cache would serve."""

    preview: str
    tokens: int
    cached: int
    independent: bool


@dataclass(slots=True, eq=False)
class Batch:
    """The prompts of one call on their way to answers: one relQuery of the engine.

    group: its number in the engine. stop: strings that are cut from its answers. relquery: None if
    no prompt could be submitted. open: requests that have not ended, and the place of their prompt.
    ready: (index into prompts, answer) in the order in which they ended; the caller takes them out.
    """

    group: int
    stop: tuple[str, ...]
    relquery: RelQuery | None = None
    open: dict[Request, int] = field(default_factory=dict)
    ready: deque[tuple[int, Answer]] = field(default_factory=deque)


class EmbeddedBackend:
    """Answers prompts on this machine. Requests of one call form one relQuery. Not thread-safe.

    cost: what steps cost on this machine: a LinearCost, a name of engine.costs.SERVED, or a file of
        `relquery calibrate`. By default it is measured, about a second for ten million parameters
        on two cores, if the policy predicts durations.
    """

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig | None = None,
        cost: LinearCost | str | Path | None = None,
    ) -> None:
        from relquery.model.executor import TorchExecutor
        from relquery.model.render import Renderer

        self.config = config = config or EngineConfig()
        given = _cost_of(cost)
        self._slots = config.cache_tokens // config.block_size * config.block_size
        self._executor = TorchExecutor(
            model.network,
            self._slots,
            config.segment_sharing,
            model.positions,
            config.relocation,
        )
        self._model, self._renderer = model, Renderer(model.tokenizer)
        if given is None and config.policy not in WITHOUT_COST:
            given = self._measure(quick=True).cost
        self.cost = given
        """What steps cost, as given or measured; None where nothing asks for it."""
        settings = Settings.of(config, given)
        policy = make_policy(config.policy, settings)
        self.engine = Loop(self._executor, config, RealClock(), policy, given)
        self._groups, self._ids = count(), count()
        self._batches: dict[int, Batch] = {}

    @property
    def _placing(self) -> Placing:
        if not self._model.positions.relocatable:
            return "bound"
        return "request" if self.config.relocation == "cidra" else "chain"

    @property
    def name(self) -> str:
        """The model's name and version: other weights under this name have another one."""
        return f"{self._model.name}@{self._model.version}"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """See Backend.answer. Prompts are served in the order given.

        All are submitted at once, before the first answer is asked for, so that several calls
        run in the same steps.
        """
        served = self._serve(prompts, sampling)
        next(served)
        return cast(Iterator[tuple[int, Answer]], served)

    def _serve(
        self, prompts: Sequence[Prompt], sampling: Sampling
    ) -> Iterator[tuple[int, Answer] | None]:
        """None once all prompts are submitted, then the answers."""
        batch = self.submit(prompts, sampling)
        try:
            yield None
            while batch.open or batch.ready:
                while batch.ready:
                    yield batch.ready.popleft()
                if batch.open:
                    self.step()
        finally:
            self.cancel(batch)

    def submit(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        tenant: str = "",
        arrival: float | None = None,
    ) -> Batch:
        """Queue all prompts as one relQuery; `step` then serves them. Runs no step itself.

        A prompt that cannot be served has its answer, with an error, in the batch at once.
        tenant, arrival: see Loop.submit.
        """
        batch = Batch(next(self._groups), sampling.stop)
        self._batches[batch.group] = batch
        try:
            make = self._maker(sampling, batch.group)
            for index, prompt in enumerate(self._render(prompts)):
                length = 0
                try:
                    if isinstance(prompt, RequestError):
                        raise prompt
                    request = make(prompt)
                    length = request.prompt_tokens
                    batch.relquery = self._submit(request, tenant, arrival)
                    batch.open[request] = index
                except RequestError as error:
                    refused = Answer(None, Finish.ERROR, str(error), prompt_tokens=length)
                    batch.ready.append((index, refused))
        except BaseException:
            self.cancel(batch)
            raise
        self._forget_ended(batch)
        return batch

    def step(self) -> list[Batch]:
        """Run one step of the engine, and put the answers that it gave into their batches.

        Returns these batches. May be called only while a request is open.
        """
        touched: dict[Batch, None] = {}
        for request in self.engine.step():
            batch = self._batches[request.group]
            index = batch.open.pop(request)
            batch.ready.append((index, self._answer(request, batch.stop)))
            self._forget_ended(batch)
            touched[batch] = None
        return list(touched)

    def cancel(self, batch: Batch) -> None:
        """End a batch's open requests; they have answers that say so. For an ended one nothing."""
        for request, index in batch.open.items():
            self.engine.cancel(request)
            batch.ready.append((index, _cancelled(request)))
        batch.open.clear()
        self._forget_ended(batch)

    def _forget_ended(self, batch: Batch) -> None:
        if not batch.open:
            self._batches.pop(batch.group, None)

    def inspect(self, prompt: Prompt) -> tuple[SpanState, ...]:
        """The pieces of a prompt in order, and how much of each the cache would serve now.

        Raises RequestError for a prompt that cannot be rendered.
        """
        (chain,) = self._renderer.render([prompt])
        request = Request(-1, chain, 1, placing=self._placing)
        cached = cached_tokens(request, self.config, self.engine.pool)
        own = set(own_pieces(request.pieces))
        return tuple(
            SpanState(
                preview=self._renderer.decode(piece.tokens[:PREVIEW_TOKENS].tolist()),
                tokens=len(piece.tokens),
                cached=served,
                independent=index not in own,
            )
            for index, (piece, served) in enumerate(zip(request.pieces, cached, strict=True))
            if len(piece.tokens)
        )

    def reserve(self) -> None:
        """Take the memory of the whole KV cache now; otherwise it is taken as the cache fills.

        That costs up to a second per GiB, which a service would rather spend before the first
        request. Runs one request of one token.
        """
        for _ in self.answer([(Span("."),)], Sampling(max_tokens=1)):
            pass
        self._executor.reserve()

    def calibrate(
        self, *, seed: int = 0, progress: Callable[[str, int, int], None] | None = None
    ) -> Fit:
        """Measure what steps cost on this machine, and fit the linear cost model to them.

        Empties the cache. progress: called with ("batches", timed so far, in all). Raises
        ConfigError while requests are open.
        """
        engine = self.engine
        if engine.waiting or engine.running:
            raise ConfigError("Requests are open; calibrate before or after them.")
        engine.pool.evict(engine.pool.total)
        return self._measure(seed=seed, progress=progress)

    def _measure(
        self,
        *,
        quick: bool = False,
        seed: int = 0,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Fit:
        return calibrate(
            self._executor,
            replace(self.config, cache_tokens=self._slots),
            RealClock(),
            vocabulary=len(self._model.tokenizer),
            longest=self._model.context,
            quick=quick,
            seed=seed,
            progress=progress,
        )

    def close(self) -> None:
        """Free the model and the KV cache; a second time does nothing."""
        vars(self).clear()

    def _render(self, prompts: Sequence[Prompt]) -> Sequence[Chain | RequestError]:
        try:
            return self._renderer.render(prompts)
        except RequestError:
            return [self._render_one(prompt) for prompt in prompts]

    def _render_one(self, prompt: Prompt) -> Chain | RequestError:
        try:
            return self._renderer.render([prompt])[0]
        except RequestError as error:
            return error

    def _maker(self, sampling: Sampling, group: int) -> Callable[[Chain], Request]:
        """A function from a prompt to a request with this sampling."""
        choices = tuple(self._renderer.encode(text) for text in sampling.allowed)
        stop = self._stop_check(sampling.stop)
        bound = max((len(choice) for choice in choices), default=sampling.max_tokens)

        def make(prompt: Chain) -> Request:
            request = Request(
                id=next(self._ids),
                source=prompt,
                max_tokens=bound,
                end=self._model.end,
                stop=stop,
                choices=choices,
                group=group,
                placing=self._placing,
            )
            seed = _seed_of(request, sampling.seed)
            request.draw = Draw(sampling.temperature, sampling.top_p, sampling.top_k, seed)
            return request

        return make

    def _submit(self, request: Request, tenant: str, arrival: float | None) -> RelQuery:
        left = self._model.context - request.prompt_tokens
        if left <= 0:
            raise PromptTooLongError(
                request.prompt_tokens, self._model.context, "the model's context"
            )
        request.max_tokens = min(request.max_tokens, left)
        return self.engine.submit(request, tenant, arrival)

    def _stop_check(self, stop: tuple[str, ...]) -> Callable[[Sequence[int]], bool] | None:
        if not stop:
            return None
        longest = max(len(text.encode()) for text in stop)

        def stopped(output: Sequence[int]) -> bool:
            # A stop string of n bytes lies within the last n tokens once its last byte is there;
            # a few more let the text before it decode.
            tail = self._renderer.decode(output[-(longest + 8) :])
            return any(text in tail for text in stop)

        return stopped

    def _answer(self, request: Request, stop: tuple[str, ...]) -> Answer:
        assert request.finish is not None
        text = self._renderer.decode(request.output)
        text = text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]
        error = None
        if request.finish is Finish.LENGTH:
            error = (
                f"The answer was cut after {len(request.output)} tokens. "
                "Raise max_tokens, or ask for a shorter answer."
            )
        return Answer(
            text=text,
            finish=request.finish,
            error=error,
            prompt_tokens=request.prompt_tokens,
            cached_tokens=request.cached or 0,
            output_tokens=len(request.output),
            tokens=tuple(request.output),
        )


def _cancelled(request: Request) -> Answer:
    return Answer(
        text=None,
        finish=Finish.CANCELLED,
        error="It was cancelled before its answer was whole.",
        prompt_tokens=request.prompt_tokens,
        cached_tokens=request.cached or 0,
        output_tokens=len(request.output),
    )


def _cost_of(given: LinearCost | str | Path | None) -> LinearCost | None:
    if isinstance(given, (str, Path)):
        return find_machine(str(given)).cost
    if given is not None and not isinstance(given, LinearCost):
        raise ConfigError(
            f"cost is {given!r}. Give a LinearCost, the name of a machine "
            f"({', '.join(SERVED)}), or a file that `relquery calibrate` wrote."
        )
    return given


def _seed_of(request: Request, given: int | None) -> int:
    """A fresh seed where none is given; else one that also comes from the request's content.

    So neither the order of the rows nor what else is asked changes a sampled answer.
    """
    if given is None:
        return secrets.randbits(62)
    content = hashlib.blake2b(digest_size=7)
    for piece in request.pieces:
        content.update(piece.tokens.tobytes())
    return given ^ int.from_bytes(content.digest())


def _resolve(model: str) -> str:
    if model == "demo":
        from relquery.demo.files import model_path

        return str(model_path())
    return model
