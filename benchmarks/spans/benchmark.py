"""`scripts/bench spans`: what span queries gain over the same prompts as ordinary text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Figure, Say, Settings, document, too_small
from benchmarks.spans import bulk as spans_bulk
from benchmarks.spans import decode as spans_decode
from benchmarks.spans import moves as spans_moves
from benchmarks.spans import needles as spans_needles
from benchmarks.spans import nested as spans_nested
from benchmarks.spans import rag as spans_rag
from benchmarks.spans.document import Results, write
from benchmarks.spans.setup import PASSAGES, load_model, read_passages
from benchmarks.spans.sizes import Sizes, choose

if TYPE_CHECKING:
    from relquery.model.networks.load import LoadedModel


# What counts tokens or answers, not seconds: it means the same at a small size.
JUDGED_AT_ANY_SIZE = frozenset(
    {
        "bulk_2wiki_tokens",
        "bulk_nq_tokens",
        "locality_tree_right",
        "locality_generated_right",
    }
)


def run(settings: Settings, say: Say) -> Iterator[Figure]:
    """All figures of the benchmark; writes its document last."""
    from relquery.model.networks.stock import parameters, set_threads

    set_threads(settings.threads)
    sizes = choose(settings.quick)
    model = load_model(sizes, settings.data)
    results = Results(sizes, parameters(model.network))
    say(f"{sizes.model}: {results.parameters / 1e6:.1f} M parameters, embeddings aside")
    for figure in _figures(model, sizes, settings, say, results):
        judged = not settings.quick or figure.name in JUDGED_AT_ANY_SIZE
        results.figures.append(figure if judged else too_small(figure))
        yield results.figures[-1]
    if settings.write is not None:
        run_as = document(BENCHMARK, settings, results.figures)
        write(settings.write, results, run_as, settings.seed, say)


BENCHMARK = Benchmark("spans", "time to first token, bulks and attention of span queries", run)


def _figures(
    model: LoadedModel, sizes: Sizes, settings: Settings, say: Say, results: Results
) -> Iterator[Figure]:
    for served in spans_rag.measure(model, sizes, settings.seed, say):
        results.served.append(served)
    yield from spans_rag.figures(results.served)
    for judged in spans_nested.measure(model, sizes, settings.seed, say):
        results.judged.append(judged)
    yield from spans_nested.figures(results.judged)
    for name, file in PASSAGES.items():
        rows = read_passages(settings.data / file, sizes.queries)
        if not rows:
            note = f"{settings.data / file} is absent"
            yield Figure(name, None, spans_bulk.GOAL, note=note)
            continue
        results.bulks.append(spans_bulk.measure(model, name, rows, say))
        yield from spans_bulk.figures(results.bulks[-1])
    for tokens in sizes.spans:
        results.moved.append(spans_moves.measure(model, tokens, sizes.repeats, say))
    results.decoded = spans_decode.measure(model, sizes, settings.seed)
    yield spans_decode.figure(results.decoded)
    for found in spans_needles.measure(sizes, settings.seed, say):
        results.found.append(found)
    yield from spans_needles.figures(results.found)
