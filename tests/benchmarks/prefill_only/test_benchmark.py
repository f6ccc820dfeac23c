"""The prefill-only benchmark serves the same requests under every policy, and says how fast."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import Settings
from benchmarks.prefill_only import batching, scheduling, workloads
from benchmarks.prefill_only import filter as prefill_only_filter
from benchmarks.prefill_only import jct as prefill_only_jct
from benchmarks.prefill_only import lengths as prefill_only_lengths
from benchmarks.prefill_only import sizes as prefill_only_sizes
from benchmarks.prefill_only.benchmark import BENCHMARK
from benchmarks.prefill_only.filter import SIDES, Filtered, Run
from benchmarks.prefill_only.lengths import NAMES, Lengths, Longest
from benchmarks.prefill_only.serving import aging as prefill_only_aging
from benchmarks.prefill_only.serving import spacings, traffic
from benchmarks.prefill_only.serving.arrivals import Arrivals
from benchmarks.prefill_only.serving.latencies import traffic_figures
from benchmarks.prefill_only.serving.traffic import (
    MODES,
    SWEPT,
    Engines,
    Mode,
    Rounds,
    Served,
    Traffic,
)
from benchmarks.prefill_only.sizes import FULL, QUICK
from benchmarks.prefill_only.workloads import Workload
from benchmarks.stock import executor_of
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SimulatedExecutor, VirtualClock
from relquery.model.load import load
from tests.benchmarks.conftest import Quick, by_name

TINY = replace(
    QUICK, scales=(0.005, 0.005), counts=(2.0, 2.0), users=3, waiting=200,
    model="random:layers=1,hidden=16,heads=1", loads=((4.0,), (4.0,)),
)  # fmt: skip


COST = LinearCost(1e-4, 4e-3, 1e-4, 4e-3)
POSTS, CREDITS = FULL.workloads(vocabulary=257, seed=0)
FEW_POSTS, FEW_CREDITS = TINY.workloads(vocabulary=257, seed=0)


def simulated(cost: LinearCost) -> traffic.Engine:
    clock = VirtualClock()
    return traffic.Engine(SimulatedExecutor(clock, cost), clock, clock.advance, cost)


def test_posts_of_a_user_begin_with_this_users_history() -> None:
    beginnings = {
        (user, prompt[:1_100].tobytes())
        for user, prompt in zip(POSTS.users, POSTS.prompts, strict=True)
    }
    assert len(beginnings) == workloads.USERS
    assert POSTS.users == tuple(user for user in range(workloads.USERS) for _ in range(12))
    assert {1_115 <= len(prompt) <= 1_715 for prompt in POSTS.prompts} == {True}
    assert POSTS.chunk == 204
    histories = sum(
        {prompt[:1_100].tobytes(): len(prompt) - 15 for prompt in POSTS.prompts}.values()
    )
    assert POSTS.cache_tokens == pytest.approx(histories / 4, abs=4)


def test_inputs_have_nothing_in_common_and_the_longest_fits_the_cache() -> None:
    assert len({prompt[:16].tobytes() for prompt in CREDITS.prompts}) == len(CREDITS.prompts) == 60
    assert CREDITS.users == tuple(range(60))
    assert {2_000 <= len(prompt) <= 3_000 for prompt in CREDITS.prompts} == {True}
    assert CREDITS.longest < CREDITS.cache_tokens <= CREDITS.longest + 16
    assert CREDITS.limits(hybrid=True).max_input == CREDITS.longest
    assert CREDITS.limits(hybrid=False).max_input is None


def test_the_papers_own_sizes_are_those_of_scale_one() -> None:
    posts, credits = replace(FULL, scales=(1.0, 1.0)).workloads(vocabulary=257, seed=0)
    assert len(posts.prompts) == 1_000
    assert posts.tokens == pytest.approx(14e6, rel=0.05)
    assert len(credits.prompts) == 60
    assert credits.tokens == pytest.approx(3e6, rel=0.05)


@pytest.fixture(scope="module")
def served() -> tuple[Traffic, Traffic]:
    """Both workloads on a tiny network, at a low load and under every policy at a high one."""
    model, cost = load(TINY.model), LinearCost(1e-5, 1e-3, 1e-5, 1e-3)
    plan: dict[float, tuple[tuple[Mode, ...], int]] = {0.5: (SWEPT, 1), 4.0: (MODES, 2)}

    def serve(workload: Workload) -> Traffic:
        opened = Engines(model, workload, cost).open
        most = traffic.saturate(workload, opened)
        return traffic.measure(workload, Arrivals(), most, opened, plan, 0, lambda text: None)

    posts, credits = map(serve, (FEW_POSTS, FEW_CREDITS))
    return posts, credits


def test_a_network_gives_the_same_answers_under_every_policy(
    served: tuple[Traffic, Traffic],
) -> None:
    for each in served:
        assert each.equal == 1.0
        assert list(each.loads) == [0.5, 4.0]
        assert tuple(each.loads[0.5]) == SWEPT
        assert tuple(each.highest) == MODES
        for rounds in each.highest.values():
            assert len(rounds.runs) == 2
            assert rounds.runs[0].arrivals != rounds.runs[1].arrivals
            for run in rounds.runs:
                assert len(run.latencies) == len(each.workload.prompts)
                assert set(run.outputs) <= set(traffic.LABELS)
                for logs in run.scores:
                    assert np.exp(logs).sum() == pytest.approx(1.0)
        for one, other in zip(each.highest["fifo"].runs, each.highest["srjf"].runs, strict=True):
            assert one.arrivals == other.arrivals


def test_another_answer_is_noticed(served: tuple[Traffic, Traffic]) -> None:
    posts = served[0]
    (run,) = posts.loads[0.5]["fifo"].runs
    wrong = replace(run, scores=((-5.0, -0.1), *run.scores[1:]))
    loads = {**posts.loads, 0.5: {**posts.loads[0.5], "fifo": Rounds((wrong,))}}
    assert replace(posts, loads=loads).equal == 1 - 1 / len(run.scores)


def test_latencies_at_a_low_load_are_those_of_the_work_alone() -> None:
    cost = LinearCost(1e-4, 1e-3, 1e-4, 1e-3)
    come = Arrivals("shuffled").draw(FEW_POSTS, 1e-3, 1.0, 0)
    run = traffic.run(FEW_POSTS, come, "fifo", simulated(cost))
    assert max(run.latencies) <= cost.seconds(FEW_POSTS.longest, 0) + 1e-9
    assert run.seconds == pytest.approx(max(come), rel=0.01)


def test_requests_of_one_user_are_brought_together() -> None:
    come = Arrivals("shuffled").draw(POSTS, 4.0, 50.0, 0)
    fifo, srjf = (traffic.run(POSTS, come, mode, simulated(COST), 0.0) for mode in SWEPT[1:])
    assert srjf.cached > 0.85
    assert fifo.cached < 0.4
    assert srjf.throughput > 4 * fifo.throughput


def test_first_in_first_out_finds_histories_cached_where_users_come_one_after_another() -> None:
    by_user, shuffled = (
        traffic.run(POSTS, each.draw(POSTS, 1.0, 50.0, 0), "fifo", simulated(COST))
        for each in (Arrivals(), Arrivals("shuffled"))
    )
    assert by_user.cached > 0.85
    assert shuffled.cached < 0.4
    assert by_user.mean < shuffled.mean / 4


def test_more_aging_makes_the_longest_wait_less_until_all_is_first_in_first_out() -> None:
    sweep = prefill_only_aging.measure(POSTS, 2.0, COST, 0)
    rows = sweep.aged
    assert [row.aging for row in rows] == list(prefill_only_aging.AGINGS)
    assert max(rows[-1].served.latencies) < max(rows[0].served.latencies)
    assert [row.tokens for row in rows] == pytest.approx([1e4 * row.aging for row in rows])
    assert rows[0].served.mean < sweep.fifo.mean
    assert sweep.clairvoyant is None, "requests share histories: their seconds depend on the order"


def test_lambda_0_is_the_shortest_job_first_for_inputs_that_have_nothing_in_common() -> None:
    sweep = prefill_only_aging.measure(CREDITS, 1e6, LinearCost(1e-4, 0.0, 1e-4, 0.0), 0)
    means = [row.served.mean for row in sweep.aged]
    jobs = sorted(1e-4 * len(prompt) for prompt in CREDITS.prompts)
    best = sum((len(jobs) - at) * job for at, job in enumerate(jobs)) / len(jobs)
    assert sweep.clairvoyant == pytest.approx(best, rel=1e-3)
    assert means[0] == pytest.approx(best, rel=0.01)
    assert means[0] < sweep.fifo.mean


def test_the_closer_users_come_the_less_an_order_gains() -> None:
    half = replace(POSTS, prompts=POSTS.prompts[:120], users=POSTS.users[:120])
    found = spacings.measure(half, COST, (0,))
    names = [at.name for at in found]
    assert names[0] == "users, 0 / x apart"
    assert names[-2:] == ["users, 0.1 s apart", "shuffled"]
    assert found[0].gains[4.0] < found[-1].gains[4.0] / 2
    assert all(gain > 1 for at in found for gain in at.gains.values())
    assert [len(row) for row in spacings.rows(found)] == [len(spacings.COLUMNS)] * len(found)


def test_prompts_of_a_network_are_timed_up_to_the_longest() -> None:
    proxy = prefill_only_jct.measure(load(TINY.model), FEW_POSTS, repeats=1, seed=0)
    assert max(timed.length for timed in proxy.linear.timed) <= FEW_POSTS.longest
    (figure,) = prefill_only_jct.figures([proxy])
    assert figure.value == proxy.linear.proxy


def rounds(latency: float, seconds: float) -> Rounds:
    """Two requests that come at once, of which one takes as long as the other."""
    latencies = (latency, 2 * latency)
    scores = ((-0.1, -2.4),) * 2
    return Rounds((Served((0.0, 0.0), latencies, seconds, 0.5, ((1,), (1,)), scores),))


def measured(workload: Workload) -> Traffic:
    by: dict[Mode, Rounds] = {
        "chunked": rounds(16.0, 40.0),
        "fifo": rounds(10.0, 20.0),
        "srjf-static": rounds(9.0, 20.0),
        "srjf-calibrated": rounds(3.0, 6.0),
        "srjf": rounds(2.0, 5.0),
    }
    loads = {0.25: {**{mode: by[mode] for mode in SWEPT}, "fifo": rounds(4.0, 5.0)}, 4.0: by}
    return Traffic(workload, "users", 3.0, loads)


def shuffled(workload: Workload) -> Traffic:
    by: dict[Mode, Rounds] = {"fifo": rounds(12.0, 20.0), "srjf": rounds(2.0, 5.0)}
    return Traffic(workload, "shuffled", 3.0, {4.0: by})


def test_prompts_that_share_a_step_are_timed_and_join_where_a_step_costs_much() -> None:
    model = load(TINY.model)
    dear, cheap = LinearCost(1e-6, prefill_intercept=1.0), LinearCost(1e-3, prefill_intercept=0.0)
    executor = executor_of(model, 80)
    for cost, joins in ((dear, batching.OTHERS), (cheap, 1)):
        found = batching.measure(executor, cost, 0.005, 1, 0)
        assert [row.uncached for row in found] == list(batching.UNCACHED)
        assert {row.joins for row in found} == {joins}
        assert all(row.each(1) == 1.0 and row.each(8) > 0 for row in found)
        assert len(list(batching.rows(found))) == len(batching.UNCACHED)


def test_gains_are_of_the_highest_load() -> None:
    posts = measured(FEW_POSTS), shuffled(FEW_POSTS)
    found = {each.name: each for each in traffic_figures(*posts, measured(FEW_CREDITS))}
    assert by_name(found.values()) == pytest.approx(
        {
            "wl1_fifo_over_srjf_mean": 5.0,
            "wl1_least_gain": 2.0,
            "wl1_p99": 0.2,
            "wl1_throughput": 8.0,
            "wl1_shuffled_fifo_over_srjf": 6.0,
            "wl2_srjf_over_clairvoyant": 1.0,
            "wl2_fifo_over_clairvoyant": 1.0,
            "wl2_fifo_over_srjf": 5.0,
            "wl2_chunked_over_srjf": 8.0,
            "wl2_p99": 0.2,
            "equal_answers": 1.0,
        }
    )
    assert "chunked: 8.00" in found["wl1_fifo_over_srjf_mean"].note
    assert "2.00 at 0.25 x, 5.00 at 4 x" in found["wl1_least_gain"].note


def test_scheduling_is_timed_with_prompts_of_one_relquery_and_of_many() -> None:
    by_kind = scheduling.measure(400)
    assert list(by_kind) == ["one relQuery", "4 relQueries"]
    for rows in by_kind.values():
        assert [row.policy for row in rows] == list(scheduling.QUEUED)
    slowest = max(rows[-1].mean for rows in by_kind.values())
    assert next(scheduling.figures(by_kind)).value == slowest


def test_a_scale_is_that_of_both_workloads() -> None:
    settings = Settings(quick=False, data=Path("nowhere"), scale=0.25)
    assert prefill_only_sizes.choose(settings) == replace(FULL, scales=(0.25, 0.25))
    assert prefill_only_sizes.choose(replace(settings, scale=None)) == FULL
    assert not FULL.small
    assert QUICK.small


def test_a_quick_run_judges_answers_and_memory_and_writes_all_parts(
    tmp_path: Path, quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = {name: Longest(100 * (number + 1), 2**20) for number, name in enumerate(NAMES)}
    race = ((1.0,), (1.0,))
    lengths = Lengths(QUICK.lengths, 4 * 2**20, 2**20, 32, longest, 2**20, race, race)
    filtered = Filtered(2, ("a b", "a c"), 3, dict.fromkeys(SIDES, (Run(2.0, (1, 2), 10, 5, 0),)))
    monkeypatch.setattr(prefill_only_sizes, "QUICK", TINY)
    monkeypatch.setattr(prefill_only_lengths, "measure", lambda sizes, say: lengths)
    monkeypatch.setattr(prefill_only_filter, "measure", lambda *given: [filtered])
    figures, text = quick(BENCHMARK)
    judged = {name: figure.holds for name, figure in figures.items() if figure.holds is not None}
    assert judged == {"peak_as_profiled": True, "equal_answers": True}
    assert set(figures) > {"srjf_step_ms", "max_input_over_plain", "jct_proxy_pearson", "wl1_p99"}
    assert {"wl2_srjf_over_clairvoyant", "filter_one_token"} < set(figures)
    assert "--quick" in text
    assert "15 requests, 5 for" in text
    assert "| plain prefilling | 100 | 1.0 | 1.0 MiB |" in text
    assert "| 2 tokens | scored | 2.00 | 2.00 | 1.00 |" in text
    pictures = re.findall(r"\((\w+\.png)\)", text)
    assert len(pictures) == 4
    assert all((tmp_path / each).read_bytes().startswith(b"\x89PNG") for each in pictures)
