"""The embedded engine as a backend: prompts to requests, finished requests to answers."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from relquery.config import EngineConfig
from relquery.engine.calibrate import calibrate
from relquery.engine.clock import RealClock
from relquery.engine.fit import Fit
from relquery.engine.loop import Loop
from relquery.engine.pieces import Chain, Placing, own_pieces
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


def load_backend(model: str, **options: Any) -> EmbeddedBackend:
    """Load a model and put an engine around it.

    model: "demo", a Hugging Face name or folder, or "random:layers=8,hidden=256".
    options: fields of EngineConfig, and dtype, device, tokenizer (see relquery.model.load).
    Raises ModelError, ConfigError, and MissingExtraError without the `local` extra.
    """
    known = [*_ENGINE_OPTIONS, *_MODEL_OPTIONS]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"'{name}' is not an option of the embedded engine. Options: {', '.join(known)}."
                + did_you_mean(name, known)
            )
    try:
        from relquery.model.load import load
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"Running the model '{model}' on this machine", "local") from error
    config = EngineConfig(**{k: v for k, v in options.items() if k in _ENGINE_OPTIONS})
    loaded = load(_resolve(model), **{k: v for k, v in options.items() if k in _MODEL_OPTIONS})
    return EmbeddedBackend(replace(loaded, name=model), config)


@dataclass(frozen=True, slots=True)
class SpanState:
    """A piece of a prompt: how its text begins, its tokens, and how many the cache would serve."""

    preview: str
    tokens: int
    cached: int
    independent: bool


class EmbeddedBackend:
    """Answers prompts on this machine. Requests of one `answer` call form one relQuery."""

    def __init__(self, model: LoadedModel, config: EngineConfig | None = None) -> None:
        from relquery.model.executor import TorchExecutor
        from relquery.model.render import Renderer

        self.config = config or EngineConfig()
        slots = self.config.cache_tokens // self.config.block_size * self.config.block_size
        self._executor = TorchExecutor(
            model.network,
            slots,
            self.config.segment_sharing,
            model.positions,
            self.config.relocation,
        )
        self.engine = Loop(self._executor, self.config, RealClock())
        self._model, self._renderer = model, Renderer(model.tokenizer)
        self._groups, self._ids = count(), count()
        self._finished: dict[int, deque[Request]] = {}

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
        group = next(self._groups)
        box = self._finished[group] = deque[Request]()
        open_requests: dict[int, tuple[int, Request]] = {}
        refused: list[tuple[int, Answer]] = []
        try:
            make = self._maker(sampling, group)
            for index, prompt in enumerate(self._render(prompts)):
                length = 0
                try:
                    if isinstance(prompt, RequestError):
                        raise prompt
                    request = make(prompt)
                    length = request.prompt_tokens
                    self._submit(request)
                    open_requests[request.id] = (index, request)
                except RequestError as error:
                    answer = Answer(None, Finish.ERROR, str(error), prompt_tokens=length)
                    refused.append((index, answer))
            yield None
            yield from refused
            while open_requests:
                while box:
                    index, request = open_requests.pop(box.popleft().id)
                    yield index, self._answer(request, sampling.stop)
                for request in self.engine.step() if open_requests else ():
                    self._finished[request.group].append(request)
        finally:
            for _, request in open_requests.values():
                self.engine.cancel(request)
            del self._finished[group]

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
        return calibrate(
            self._executor,
            self.config,
            RealClock(),
            vocabulary=len(self._model.tokenizer),
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

    def _submit(self, request: Request) -> None:
        left = self._model.context - request.prompt_tokens
        if left <= 0:
            raise PromptTooLongError(
                request.prompt_tokens, self._model.context, "the model's context"
            )
        request.max_tokens = min(request.max_tokens, left)
        self.engine.submit(request)

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
