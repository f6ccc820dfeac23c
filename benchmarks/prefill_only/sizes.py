"""How much `scripts/bench prefill-only` measures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.harness import Settings
from benchmarks.prefill_only import filter as sql_filter
from benchmarks.prefill_only import lengths, workloads
from benchmarks.prefill_only.workloads import Workload


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. In pairs, the first is for the posts and the second for the inputs.

    model: the model's name. scales: prompt tokens relative to the paper's. counts: prompts
    as a share of the paper's, for each tenth of the scale. users: of the posts. loads: of each.
    rounds: of the posts, at the lower loads and at the highest, where much depends on which users
    arrive together. repeats: of prompts whose times are compared. draws: of simulated arrivals.
    waiting: requests in a long queue. lengths, filter: see there.
    """

    model: str = "random:layers=4,hidden=320,heads=5,kv_heads=1,ffn=1280"
    scales: tuple[float, float] = (0.1, 0.05)
    counts: tuple[float, float] = (0.25, 2.0)
    users: int = workloads.USERS
    loads: tuple[tuple[float, ...], tuple[float, ...]] = ((0.5, 1.0, 2.0, 4.0), (0.5, 1.0, 4.0))
    rounds: tuple[int, int] = (2, 5)
    repeats: int = 5
    draws: int = 5
    waiting: int = 100_000
    lengths: lengths.Sizes = lengths.FULL
    filter: sql_filter.Sizes = sql_filter.FULL

    def workloads(self, vocabulary: int, seed: int) -> tuple[Workload, Workload]:
        """Both, at these scales."""
        whole = workloads.POSTS, workloads.INPUTS
        posts, inputs = (
            max(2, round(min(1.0, share * scale / 0.1) * count))
            for share, scale, count in zip(self.counts, self.scales, whole, strict=True)
        )
        scale, inputs_scale = self.scales
        return (
            workloads.post_recommendation(scale, self.users, posts, vocabulary, seed),
            workloads.credit_verification(inputs_scale, inputs, vocabulary, seed),
        )

    @property
    def small(self) -> bool:
        """Whether prompts are shorter than those that the goals are for."""
        return self.scales < FULL.scales


FULL = Sizes()
QUICK = Sizes(
    model="random:layers=2,hidden=64,heads=2",
    scales=(0.02, 0.02),
    counts=(0.5, 0.5),
    users=6,
    loads=((1.0, 4.0), (4.0,)),
    rounds=(1, 1),
    repeats=1,
    draws=1,
    waiting=2_000,
    lengths=lengths.QUICK,
    filter=sql_filter.QUICK,
)


def choose(settings: Settings) -> Sizes:
    """The sizes of a quick or a full run, at the requested scale."""
    sizes = QUICK if settings.quick else FULL
    if settings.scale is None:
        return sizes
    return replace(sizes, scales=(settings.scale, settings.scale))
