"""The engine on this machine as a backend, whose steps are run by who waits for its answers.

What it is asked between two steps is a table of functions: about its model, and about prompts that
wait for no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from relquery.arrays import TokenIds
from relquery.backends.base import SpanState
from relquery.backends.local.asking import Asking
from relquery.backends.local.client import EngineClient
from relquery.backends.local.core import LoadedEngine
from relquery.backends.local.host import CLOSED, Facts, Sink
from relquery.backends.local.state import FORECASTS, EngineState, state_of
from relquery.engine.requests.pieces import Chain, depths
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.reuse import cached_tokens
from relquery.errors import ConfigError, RequestError
from relquery.prompt import Prompt, Sampling, Span

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

PREVIEW_TOKENS = 12


class EmbeddedBackend(LoadedEngine, EngineClient):
    """Answers prompts on this machine, in the thread of who asks: an EngineHost and its own client.

    more: see LoadedEngine. Not thread-safe.
    """

    def __init__(self, model: ServedModel, *given: Any, **more: Any) -> None:
        LoadedEngine.__init__(self, model, *given, **more)
        EngineClient.__init__(self, self, facts_of(self))

    def ask(self, question: str, *given: Any) -> Any:
        if self.closed:
            raise ConfigError(CLOSED)
        return QUESTIONS[question](self, *given)

    def reserve(self) -> None:
        """Take the memory of the whole KV cache now; otherwise it is taken as the cache fills.

        That costs up to a second per GiB, which a service would rather spend before the first
        request. Runs one request.
        """
        # Two tokens: the states of a prompt whose answer has one may never enter the cache.
        self.answers([(Span("."),)], Sampling(max_tokens=2))
        self._executor.reserve()


def facts_of(engine: LoadedEngine) -> Facts:
    """What never changes about it."""
    model, config = engine.model, engine.config
    block = config.block_size if config.prefix_caching else 0
    return Facts(
        _name(engine),
        model.context,
        config.cache_tokens,
        block,
        config.policy,
        engine.call_form,
    )


def state(engine: LoadedEngine, most: int = FORECASTS, tenant: str | None = None) -> EngineState:
    """What it is doing now. most: relQueries that are listed. tenant: whose; None for all."""
    return state_of(engine.engine, most, tenant)


def forecast(engine: LoadedEngine, sink: Sink) -> float | None:
    """Seconds until a job's last answer, for those who ask in the engine's own process."""
    return engine.batches.forecast(sink)


def known_as(engine: LoadedEngine, adapter: str = "") -> tuple[str, ...]:
    """By all of the model's weights, wherever they lie, and by all of an adapter's.

    Older ledgers know a model by its name and version, of which other weights may have the same;
    not so where the weights follow from the name.
    """
    name, key = engine.model.name, engine.fingerprint_with(adapter)
    is_told_by_name = name == "demo" or name.startswith("random:")
    return (key, _name(engine)) if is_told_by_name and key == engine.fingerprint else (key,)


def check(engine: LoadedEngine, sampling: Sampling) -> None:
    """Raises ConfigError for a sampling that no prompt can be asked with."""
    engine.asking(sampling)


def one_pass(engine: LoadedEngine, sampling: Sampling) -> bool:
    """Whether an answer takes no forward pass beside those of its prompt."""
    example = _example(engine, sampling)
    return example.prefill_only or example.drafting


def prompt_tokens(engine: LoadedEngine, prompts: Sequence[Prompt], sampling: Sampling) -> list[int]:
    """Tokens of each prompt as it would be sent; 0 for one that would be refused."""
    asking = engine.asking(sampling)
    return [_tokens(engine, asking, each) for each in engine.render(prompts)]


def predict(
    engine: LoadedEngine, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
) -> float | None:
    """Seconds until the last answer, at most; None where it is not known what steps cost."""
    cost, config = engine.cost, engine.config
    if cost is None:
        return None
    example, total, count = _example(engine, sampling), sum(prompt_tokens), len(prompt_tokens)
    steps = -(-(total - cached) // config.max_num_batched_tokens)
    seconds = cost.seconds(total - cached, 0, cached)
    seconds += max(0, steps - 1) * cost.prefill_intercept
    decodes = 0 if example.prefill_only else example.max_tokens - 1
    rounds = -(-count // config.max_num_seqs)
    further = max(0, rounds - 1) * cost.decode_intercept
    return seconds + decodes * (cost.seconds(0, count, total) + further)


def runs(engine: LoadedEngine, prompt: Prompt) -> list[TokenIds]:
    """Token ids of a prompt's own text: before, between and after its independent spans."""
    by_path: list[list[TokenIds]] = [[]]
    for part in _chain(engine, prompt).parts:
        if isinstance(part, Chain):
            by_path.append([])
        elif isinstance(part, np.ndarray):
            by_path[-1].append(part)
    nothing = np.empty(0, np.int32)
    return [run[0] if len(run) == 1 else np.concatenate([nothing, *run]) for run in by_path]


def tokens(engine: LoadedEngine, prompt: Prompt) -> list[int]:
    """Token ids of a prompt as the model reads it."""
    return [int(token) for run in runs(engine, prompt) for token in run]


def length(engine: LoadedEngine, prompt: Prompt) -> int:
    """Tokens of a prompt's own text, however many they are."""
    return sum(map(len, runs(engine, prompt)))


def share(engine: LoadedEngine, prompts: Sequence[Prompt], adapter: str = "") -> None:
    """Let all tenants share the states of the prompts' independent spans. See Commons."""
    for chain in engine.render(prompts):
        if isinstance(chain, Chain):
            engine.engine.commons.register(_unasked(engine, chain, adapter))


def inspect(
    engine: LoadedEngine, prompt: Prompt, tenant: str = "", adapter: str = ""
) -> tuple[SpanState, ...]:
    """The pieces of a prompt, and how much of each the cache would serve.

    tenant: who would send it, and may read only some states.
    """
    loop, request = engine.engine, _unasked(engine, _chain(engine, prompt), adapter)
    loop.commons.claim(request, tenant)
    beside = [loop.shelf.where(request, i) for i in range(len(request.pieces))]
    there = cached_tokens(request, engine.config, loop.pool)
    loop.fetch(request)  # only then is it known whether what is beside is whole
    served = cached_tokens(request, engine.config, loop.pool)
    sources = [
        source if after > before else "cache" if after else ""
        for source, before, after in zip(beside, there, served, strict=True)
    ]
    return tuple(
        SpanState(
            preview=engine.decode(piece.tokens[:PREVIEW_TOKENS].tolist()),
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


def spell(engine: LoadedEngine, tokens: Sequence[int]) -> list[bytes]:
    """The bytes that each token stands for in an answer."""
    return engine.grammars.spell(tokens)


_ALL: tuple[Callable[..., Any], ...] = (
    state, forecast, known_as, check, one_pass, prompt_tokens, predict, runs, tokens, length,
    share, inspect, spell,
)  # fmt: skip
QUESTIONS = {each.__name__: each for each in _ALL}
"""By name."""


def _name(engine: LoadedEngine) -> str:
    """The model's name and version, in short, with its usual adapter."""
    used = engine.find_adapter("")
    return f"{engine.model.name}@{engine.model.version}{used.key.hex()[:8]}"


def _chain(engine: LoadedEngine, prompt: Prompt) -> Chain:
    """A prompt's tokens. Raises RequestError."""
    (chain,) = engine.render([prompt])
    if isinstance(chain, RequestError):
        raise chain
    return chain


def _unasked(engine: LoadedEngine, chain: Chain, adapter: str) -> Request:
    """A request that is looked at, and not served."""
    return Request(-1, chain, 1, adapter=engine.find_adapter(adapter), placing=engine.placing)


def _example(engine: LoadedEngine, sampling: Sampling) -> Request:
    """A request of one token with this sampling, to be looked at."""
    return engine.asking(sampling).request(-1, -1, Chain((np.zeros(1, np.int32),)))


def _tokens(engine: LoadedEngine, asking: Asking, prompt: Chain | RequestError) -> int:
    """Of a prompt; 0 if it would be refused."""
    if isinstance(prompt, RequestError):
        return 0
    request = asking.request(-1, -1, prompt)
    try:
        asking.limit(request)
        engine.engine.room(request)
    except RequestError:
        return 0
    return request.prompt_tokens
