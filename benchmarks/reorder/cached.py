"""Hits in a cache of bounded size, counted by the engine's own block pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.reorder.tables import RealTable
from relquery.config import EngineConfig, Order
from relquery.engine.executor import SimulatedExecutor, VirtualClock
from relquery.engine.loop import Loop
from relquery.engine.requests.request import Request
from relquery.errors import RequestError
from relquery.reordering.cost.measure import lru_hits
from relquery.reordering.cost.tokens import EstimatedTokens, Tokens, tokenize
from relquery.reordering.encode import encode
from relquery.reordering.items import itemize
from relquery.reordering.reorder import reorder

CACHES = (1_024, 4_096, 16_384, 65_536)
BLOCKS = (1, 16, 128)
RUNNING = (1, 32)
METHODS: tuple[Order, ...] = ("original", "fixed", "ggr", "tree")
BOUNDED = "tree, bounded"
"""`tree` that knows the size of the cache."""
_NO_LIMIT = 2**40


@dataclass(frozen=True, slots=True)
class Cached:
    """Shares of prompt tokens that a cache serves, by order of the prompts. bound: of `tree`'s
    prompts in a cache without a bound, which their depth-first order reaches. running: requests at
    once."""

    table: str
    cache: int
    block: int
    running: int
    rates: dict[str, float]
    bound: float

    @property
    def ahead(self) -> float:
        """By how much `tree` for this cache is above the best of the other methods."""
        return self.rates[BOUNDED] - max(self.rates[name] for name in METHODS if name != "tree")


def measure(table: RealTable, rows: pa.Table) -> Iterator[Cached]:
    """Every size of cache, block and batch."""
    columns = encode(rows)
    items = itemize(columns, table.bags)

    def prompts(method: Order, cache: int | None = None) -> Tokens:
        schedule = reorder(
            columns, method, table.dependencies, table.bags, "tokens", cache_tokens=cache
        )
        texts = items.texts_in_order(schedule.rows, schedule.fields, "")
        return tokenize(texts, EstimatedTokens())

    sent = {method: prompts(method) for method in METHODS}
    total = len(sent["tree"].ids)
    for cache in CACHES:
        orders: dict[str, Tokens] = {str(name): tokens for name, tokens in sent.items()}
        orders[BOUNDED] = prompts("tree", cache)
        for block in BLOCKS:
            bound = int(lru_hits(sent["tree"], _NO_LIMIT, block).sum()) / total
            for running in RUNNING:
                rates = {
                    name: _served(tokens, cache, block, running) / total
                    for name, tokens in orders.items()
                }
                yield Cached(table.name, cache, block, running, rates, bound)


def _served(tokens: Tokens, cache: int, block: int, running: int) -> int:
    """Prompt tokens that the engine takes from its cache. Prompts that do not fit into it are left
    out."""
    clock = VirtualClock()
    limits = EngineConfig(cache_tokens=cache, block_size=block, max_num_seqs=running)
    loop = Loop(SimulatedExecutor(clock), limits, clock)
    found = 0
    for number, (begin, end) in enumerate(zip(tokens.offsets, tokens.offsets[1:], strict=False)):
        try:
            loop.submit(Request(number, tokens.ids[begin:end], 2))
        except RequestError:
            continue
    for request in loop.run():
        found += request.cached or 0
    return found
