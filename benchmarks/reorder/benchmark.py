"""`scripts/bench reorder`: hit rates, distance to the optimum, growth, and cost of orders."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import Benchmark, Figure, Say, Settings, document
from benchmarks.reorder import cached, evolved
from benchmarks.reorder import growth as growing
from benchmarks.reorder.document import Results, write
from benchmarks.reorder.growth import Growth
from benchmarks.reorder.hits import Reached, measure
from benchmarks.reorder.optimum import compare, compare_hundred
from benchmarks.reorder.prices import ASKS, BILLED, REPEATS, Bills, bills, repeat
from benchmarks.reorder.tables import SCORES, TABLES, RealTable, read
from benchmarks.reorder.tokens import llama3

QUICK_ROWS = 500
QUICK_HUNDRED = "movies"  # proving its optimum takes a second
SIZES, QUICK_SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000), (1_000, 2_000, 4_000)
CACHED = ("beer", "contributions", "squad")
CACHED_ROWS, QUICK_CACHED_ROWS = 2_000, 40
BILLED_ROWS, QUICK_BILLED_ROWS = 1_000, 50
QUICK_PRICES = ("gpt-4o-mini", "claude-3-5-sonnet")
TOKENIZER = "tokenizers/llama3_tokenizer.model"
GIB = 2**30


def run(settings: Settings, say: Say) -> Iterator[Figure]:
    """All figures of the benchmark; writes its document last."""
    results = Results()
    for part in (_hit_rates, _evolved, _caches, _optimum, _growth, _bills):
        for figure in part(settings, say, results):
            results.figures.append(figure)
            yield figure
    if settings.write is not None:
        run_as = document(BENCHMARK, settings, results.figures)
        write(settings.write, results, run_as, settings.seed, say)


BENCHMARK = Benchmark("reorder", "hit rates and time of orders, their optimum and their cost", run)


def _hit_rates(settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    for table in TABLES:
        rows = read(table, settings.data)
        if rows is None:
            note = f"{settings.data / table.file} is absent"
            yield Figure(f"{table.name}_hit_rate", None, table.goal, note=note)
            yield Figure(f"{table.name}_seconds", None, 1.0, at_least=False, note=note)
            continue
        if settings.quick:
            rows = rows.slice(0, QUICK_ROWS)
        reached = measure(table, rows, repeats=1 if settings.quick else 3)
        results.reached[table.name] = reached
        for each in reached:
            say(f"{table.name}, {each.method}: {each.hit_rate:.2%}, {each.seconds:.3f} s")
        yield from _hit_figures(table, reached, settings.quick)
    apart = [
        100 * abs(each.hit_rate - each.reported)
        for reached in results.reached.values()
        for each in reached
    ]
    note = "largest distance in points between hit rates on text and those reported"
    yield Figure("hit_rate_distance", max(apart, default=None), 0.1, at_least=False, note=note)


def _hit_figures(table: RealTable, reached: list[Reached], quick: bool) -> Iterator[Figure]:
    ours = reached[-1]
    others = ", ".join(f"{each.method} {each.hit_rate:.1%}" for each in reached[:-1])
    public = f"best public solver {table.public:.1%}"
    if quick:
        note = f"{ours.hit_rate:.1%} of the first {QUICK_ROWS} rows; the goal is for all"
        yield Figure(f"{table.name}_hit_rate", None, table.goal, note=note)
    else:
        note = f"{public}, {others}"
        yield Figure(f"{table.name}_hit_rate", ours.hit_rate, table.goal, note=note)
    note = f"the whole call; solving alone {ours.seconds:.3f} s"
    yield Figure(f"{table.name}_seconds", ours.wall, 1.0, at_least=False, note=note)


def _evolved(settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    for each in evolved.measure(settings, QUICK_ROWS if settings.quick else None, say):
        results.evolved.append(each)
        say(f"{each.name}: {each.score:.3f}")
    best = max(results.evolved[1:], key=lambda each: each.score, default=None)
    ahead, note = None, "no programs"
    if best is not None:
        ahead = results.evolved[0].score - best.score
        note = f"our score less that of the best, {best.name}"
    yield Figure("evolved_ahead", ahead, 0.0, note=note)


def _caches(settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    results.cached_rows = QUICK_CACHED_ROWS if settings.quick else CACHED_ROWS
    for table in TABLES:
        rows = read(table, settings.data) if table.name in CACHED else None
        if rows is not None:
            for each in cached.measure(table, rows.slice(0, results.cached_rows)):
                results.cached.append(each)
                say(str(each))
    found = results.cached
    ahead = [100 * each.ahead for each in found]
    note = f"points that tree for a cache is above the best of others, least of {len(found)}"
    yield Figure("bounded_cache_ahead", min(ahead, default=None), 0.0, note=note)
    below = [100 * (each.rates["tree"] - each.rates[cached.BOUNDED]) for each in found]
    note = "points by which it hits less than tree for a cache without a bound, at most"
    yield Figure("bounded_cache_below", max(below, default=None), 0.0, at_least=False, note=note)


def _optimum(settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    for table in (*TABLES, SCORES):
        rows = read(table, settings.data)
        if rows is None:
            say(f"{settings.data / table.file} is absent")
            continue
        for size in table.small[: 1 if settings.quick else None]:
            small = compare(table, rows, size)
            results.small.append(small)
            say(f"{table.name}, {size} rows: {small.shortfall} below the optimum")
    proved = [small.shortfall for small in results.small if small.shortfall is not None]
    note = f"largest of {len(proved)} samples of 10 to 50 rows, in PHC; {len(results.small)} tried"
    yield Figure("optimum_shortfall", max(proved, default=None), 0.01, at_least=False, note=note)
    yield _hundred_rows(settings, say, results)


def _hundred_rows(settings: Settings, say: Say, results: Results) -> Figure:
    for table in (*TABLES, SCORES):
        if settings.quick and table.name != QUICK_HUNDRED:
            continue
        rows = read(table, settings.data)
        if rows is not None:
            hundred = compare_hundred(table, rows)
            results.hundred.append(hundred)
            say(f"{table.name}, {hundred.rows} rows: {hundred.share:.2%} of the best found")
    shares = [hundred.share for hundred in results.hundred]
    proved = sum(hundred.proved for hundred in results.hundred)
    note = f"least of {len(shares)} tables, of the best found, the proved optimum for {proved}"
    return Figure("hundred_rows_share", min(shares, default=None), 0.99, note=note)


def _growth(settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    sizes = QUICK_SIZES if settings.quick else SIZES
    for size in sizes:
        results.growth.append(growing.measure(size, settings.seed))
        say(str(results.growth[-1]))
    peak = growing.peak_bytes(sizes[-1], settings.seed)
    for figure in _growth_figures(results.growth, peak):
        yield _too_small(figure, sizes[-1]) if settings.quick else figure


def _too_small(figure: Figure, rows: int) -> Figure:
    """The figure without its value, because the goal is for more rows."""
    note = f"{figure.value:.3g} for up to {rows:,} rows: {figure.note}"
    return Figure(figure.name, None, figure.goal, figure.at_least, note)


def _growth_figures(growth: list[Growth], peak: int) -> Iterator[Figure]:
    last = growth[-1]
    note = f"the whole call; encoding before it {last.encoding:.2f} s"
    yield Figure("million_rows_seconds", last.default, 20.0, at_least=False, note=note)
    note = "most memory of a fresh process that makes, encodes and reorders them"
    yield Figure("million_rows_gib", peak / GIB, 4.0, at_least=False, note=note)
    sizes = [each.rows for each in growth]
    series = {
        "by default": [each.default for each in growth],
        "without search": [each.unsearched for each in growth],
    }
    slopes = {name: growing.exponent(sizes, seconds) for name, seconds in series.items()}
    steps = {name: growing.last_step(sizes, seconds) for name, seconds in series.items()}
    for figure, values, goal in (
        ("growth_exponent", slopes, 1.05),
        ("growth_last_step", steps, 1.1),
    ):
        note = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        yield Figure(figure, max(values.values()), goal, at_least=False, note=f"n log n: 1; {note}")


def _bills(settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    encode = llama3(settings.data / TOKENIZER)
    results.real_tokens = encode is not None
    results.billed_rows = QUICK_BILLED_ROWS if settings.quick else BILLED_ROWS
    names = QUICK_PRICES if settings.quick else BILLED
    for table in TABLES:
        rows = read(table, settings.data) if table.name in ASKS else None
        if rows is None:
            continue
        some = repeat(rows.slice(0, results.billed_rows), REPEATS)
        for each in bills(table, some, names, encode):
            results.bills.append(each)
            costs = ", ".join(f"{order} {paid.usd:.4f}" for order, paid in each.of.items())
            say(f"{table.name}, {each.price.name}, USD: {costs}")
    yield _bill_figure(results.bills)


def _bill_figure(found: list[Bills]) -> Figure:
    """Whether ordering by price pays off; the same heuristic searches by price and by tokens."""
    excess = [each.over(order) - 1 for each in found for order in ("original", "ggr")]
    note = "largest share by which ordering by price costs more than original or ggr, of "
    note += f"{len(found)} tables and prices" if found else "no table: they are absent"
    if found:
        tokens = [each.over("tree by tokens") - 1 for each in found]
        note += f"; than tree by tokens, {min(tokens):+.2%} to {max(tokens):+.2%}"
    return Figure("bill_excess", max(excess, default=None), 0.0, at_least=False, note=note)
