"""The prefill-only benchmark serves the same requests under every policy, and says how fast."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np
import pytest

from relquery.bench.harness import Figure, Settings, document
from relquery.bench.prefill_only import aging as prefill_only_aging
from relquery.bench.prefill_only import batching, traffic, workloads
from relquery.bench.prefill_only import benchmark as prefill_only
from relquery.bench.prefill_only import filter as prefill_only_filter
from relquery.bench.prefill_only import jct as prefill_only_jct
from relquery.bench.prefill_only import lengths as prefill_only_lengths
from relquery.bench.prefill_only.aging import Aged, Sweep
from relquery.bench.prefill_only.document import Results, render, write
from relquery.bench.prefill_only.filter import SIDES, Filtered, Run
from relquery.bench.prefill_only.jct import Proxy
from relquery.bench.prefill_only.lengths import NAMES, Lengths, Longest
from relquery.bench.prefill_only.traffic import MODES, SWEPT, Mode, Rounds, Served, Traffic
from relquery.bench.prefill_only.workloads import Workload
from relquery.bench.relserve.queue import Crowded
from relquery.engine.clock import RealClock, VirtualClock
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SimulatedExecutor
from relquery.engine.jct import JobTime, JobTimeFit, Timed, fit_job_time
from relquery.errors import ConfigError

TINY = replace(
    prefill_only.QUICK,
    scales=(0.005, 0.005),
    counts=(2.0, 2.0),
    users=3,
    model="random:layers=1,hidden=16,heads=1",
)


def both() -> tuple[Workload, Workload]:
    return TINY.workloads(vocabulary=257, seed=0)


def simulated(cost: LinearCost) -> traffic.Engine:
    clock = VirtualClock()
    return traffic.Engine(SimulatedExecutor(clock, cost), clock, clock.advance, cost)


def test_posts_of_a_user_begin_with_this_users_history() -> None:
    posts, _ = prefill_only.FULL.workloads(vocabulary=257, seed=0)
    beginnings = {prompt[:1_100].tobytes() for prompt in posts.prompts}
    assert len(beginnings) == posts.groups == workloads.USERS
    assert len(posts.prompts) == 12 * workloads.USERS
    assert {1_115 <= len(prompt) <= 1_715 for prompt in posts.prompts} == {True}
    assert posts.chunk == 208
    histories = sum(
        {prompt[:1_100].tobytes(): len(prompt) - 15 for prompt in posts.prompts}.values()
    )
    assert posts.cache_tokens == pytest.approx(histories / 4, abs=16)


def test_inputs_have_nothing_in_common_and_the_longest_fits_the_cache() -> None:
    _, credits = prefill_only.FULL.workloads(vocabulary=257, seed=0)
    assert len({prompt[:16].tobytes() for prompt in credits.prompts}) == len(credits.prompts) == 60
    assert {2_000 <= len(prompt) <= 3_000 for prompt in credits.prompts} == {True}
    assert credits.longest < credits.cache_tokens <= credits.longest + 16
    assert credits.limits(hybrid=True).max_input == credits.longest
    assert credits.limits(hybrid=False).max_input is None


def test_the_papers_own_sizes_are_those_of_scale_one() -> None:
    posts, credits = replace(prefill_only.FULL, scales=(1.0, 1.0)).workloads(vocabulary=257, seed=0)
    assert len(posts.prompts) == 1_000
    assert posts.tokens == pytest.approx(14e6, rel=0.05)
    assert len(credits.prompts) == 60
    assert credits.tokens == pytest.approx(3e6, rel=0.05)


def test_requests_come_as_fast_as_the_rate_says() -> None:
    posts, _ = both()
    slow, fast = posts.at(2.0), posts.at(20.0)
    assert [query.arrival for query in slow] == pytest.approx([10 * q.arrival for q in fast])
    assert all(one.arrival <= other.arrival for one, other in pairwise(slow))
    assert {query.arrival for query in posts.at(inf)} == {0.0}


def test_skipped_seconds_count_as_passed() -> None:
    clock = traffic.SkippingClock(RealClock())
    begin = clock.now()
    clock.skip(1_000.0)
    clock.skip(-5.0)
    assert 1_000 <= clock.now() - begin < 1_010


@pytest.fixture(scope="module")
def served() -> tuple[Traffic, Traffic]:
    """Both workloads on a tiny network, under every policy."""
    from relquery.model.load import load

    model, cost = load(TINY.model), LinearCost(1e-5, 1e-3, 1e-5, 1e-3)
    found = [
        traffic.measure(each, prefill_only._Engines(model, each, cost).open, (0.5, 4.0), 2, print)
        for each in both()
    ]
    return found[0], found[1]


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
            for run in rounds.runs:
                assert len(run.latencies) == len(each.workload.prompts)
                assert set(run.outputs) <= set(traffic.LABELS)
                for logs in run.scores:
                    assert np.exp(logs).sum() == pytest.approx(1.0)


def test_another_answer_is_noticed(served: tuple[Traffic, Traffic]) -> None:
    posts = served[0]
    (run,) = posts.loads[0.5]["fifo"].runs
    wrong = replace(run, scores=((-5.0, -0.1), *run.scores[1:]))
    loads = {**posts.loads, 0.5: {**posts.loads[0.5], "fifo": Rounds((wrong,))}}
    assert replace(posts, loads=loads).equal == 1 - 1 / len(run.scores)


def test_latencies_at_a_low_load_are_those_of_the_work_alone() -> None:
    posts, _ = both()
    cost = LinearCost(1e-4, 1e-3, 1e-4, 1e-3)
    run = traffic.run(posts, posts.at(1e-3), "fifo", simulated(cost))
    assert max(run.latencies) <= cost.seconds(posts.longest, 0) + 1e-9
    assert run.seconds == pytest.approx(1e3 * posts.arrivals[-1], rel=0.01)


def test_requests_of_one_user_are_brought_together() -> None:
    posts, _ = prefill_only.FULL.workloads(vocabulary=257, seed=0)
    cost = LinearCost(1e-4, 4e-3, 1e-4, 4e-3)
    fifo, srjf = (
        traffic.run(posts, posts.at(inf), mode, simulated(cost), 0.0) for mode in SWEPT[1:]
    )
    assert srjf.cached > 0.9
    assert fifo.cached < 0.4
    assert srjf.throughput > 4 * fifo.throughput


def test_more_aging_makes_the_longest_wait_less_until_all_is_first_in_first_out() -> None:
    posts, _ = both()
    sweep = prefill_only_aging.measure(posts, 1.0, LinearCost(1e-4, 1e-3, 1e-4, 1e-3))
    rows = sweep.aged
    assert [row.aging for row in rows] == list(prefill_only_aging.AGINGS)
    assert rows[-1].served.cached < rows[0].served.cached
    assert [row.tokens for row in rows] == pytest.approx([1e4 * row.aging for row in rows])
    assert rows[0].served.mean < sweep.fifo.mean


def test_lambda_0_is_the_shortest_job_first_for_inputs_that_have_nothing_in_common() -> None:
    _, credits = prefill_only.FULL.workloads(vocabulary=257, seed=0)
    sweep = prefill_only_aging.measure(credits, inf, LinearCost(1e-4, 0.0, 1e-4, 0.0))
    means = [row.served.mean for row in sweep.aged]
    jobs = sorted(1e-4 * len(prompt) for prompt in credits.prompts)
    best = sum((len(jobs) - at) * job for at, job in enumerate(jobs)) / len(jobs)
    assert means[0] == pytest.approx(best)
    assert means[0] < sweep.fifo.mean


def test_prompts_of_a_network_are_timed_up_to_the_longest() -> None:
    from relquery.model.load import load

    posts, _ = both()
    proxy = prefill_only_jct.measure(load(TINY.model), posts, repeats=1, seed=0)
    assert max(timed.length for timed in proxy.linear.timed) <= posts.longest
    (figure,) = prefill_only_jct.figures([proxy])
    assert figure.value == proxy.linear.proxy


def rounds(latency: float, seconds: float) -> Rounds:
    latencies = (latency, 2 * latency)
    return Rounds((Served(latencies, seconds, 0.5, ((1,), (1,)), ((-0.1, -2.4),) * 2),))


def measured(workload: Workload) -> Traffic:
    by: dict[Mode, Rounds] = {
        "chunked": rounds(16.0, 40.0),
        "fifo": rounds(10.0, 20.0),
        "srjf-static": rounds(9.0, 20.0),
        "srjf": rounds(2.0, 5.0),
    }
    return Traffic(workload, 3.0, {0.25: {mode: by[mode] for mode in SWEPT}, 4.0: by})


def test_prompts_that_share_a_step_are_timed_and_join_where_a_step_costs_much() -> None:
    from relquery.model.executor import TorchExecutor
    from relquery.model.load import load

    model = load("random:layers=1,hidden=16,heads=1")
    dear, cheap = LinearCost(1e-6, prefill_intercept=1.0), LinearCost(1e-3, prefill_intercept=0.0)
    executor = TorchExecutor(model.network, 80)
    for cost, joins in ((dear, batching.OTHERS), (cheap, 1)):
        found = batching.measure(executor, cost, 0.005, 1, 0)
        assert [row.uncached for row in found] == list(batching.UNCACHED)
        assert {row.joins for row in found} == {joins}
        assert all(row.each(1) == 1.0 and row.each(8) > 0 for row in found)
        assert len(list(batching.rows(found))) == len(batching.UNCACHED)


def test_gains_are_of_the_highest_load() -> None:
    posts, credits = map(measured, both())
    figures = {figure.name: figure for figure in prefill_only.traffic_figures(posts, credits)}
    assert {name: figure.value for name, figure in figures.items()} == pytest.approx(
        {
            "wl1_fifo_over_srjf_mean": 5.0,
            "wl1_p99": 0.2,
            "wl1_throughput": 8.0,
            "wl2_mean_over_srjf": 5.0,
            "wl2_p99": 0.2,
            "equal_answers": 1.0,
        }
    )
    assert "chunked: 8.00" in figures["wl2_mean_over_srjf"].note


def test_scheduling_is_timed_with_prompts_of_one_relquery_and_of_many() -> None:
    by_kind = prefill_only.crowded(400)
    assert list(by_kind) == ["one relQuery", "4 relQueries"]
    for rows in by_kind.values():
        assert [row.policy for row in rows] == list(prefill_only.QUEUED)
    slowest = max(rows[-1].mean for rows in by_kind.values())
    assert prefill_only.crowded_figure(by_kind).value == slowest


def full() -> Results:
    results = Results("random:x", (0.005, 0.005), cost=LinearCost(), waiting=400)
    timed = tuple(Timed(n, c, 0.1 * (n - c)) for n in (10, 20, 30) for c in range(0, n, 10))
    fit = fit_job_time(timed)
    linear = JobTimeFit(JobTime(), timed, 0.91, 0.95)
    results.proxies = [Proxy("posts", 30, linear, fit)]
    results.traffic = [measured(workload) for workload in both()]
    run = rounds(1.0, 9.0).runs[0]
    results.aged = [Sweep("posts", 1.0, run, (Aged(0.1, 1_000.0, run),))]
    results.crowded = {"one relQuery": [Crowded("srjf", 0.5, 2.0, 9.0)]}
    longest = {name: Longest(100 * (number + 1), 2**20) for number, name in enumerate(NAMES)}
    sizes = prefill_only.QUICK.lengths
    race = ((1.0,), (1.0,))
    results.lengths = Lengths(sizes, 4 * 2**20, 2**20, 32, longest, 2**20, race, race)
    scored = Run(2.0, (1, 2), 10, 5, 0)
    results.filtered = [Filtered(2, ("a b", "a c"), 3, dict.fromkeys(SIDES, (scored,)))]
    results.figures = [Figure("x", 1.0, 2.0)]
    return results


def described(results: Results, scale: float | None = None) -> dict[str, object]:
    settings = Settings(quick=False, data=Path("nowhere"), scale=scale)
    return document(prefill_only.BENCHMARK, settings, results.figures)


def test_the_document_shows_all_parts_and_pictures(tmp_path: Path) -> None:
    results = full()
    write(tmp_path, results, described(results, 0.005), 7, lambda text: None)
    text = (tmp_path / "prefill_only.md").read_text(encoding="utf-8")
    assert "`relquery bench prefill-only --scale 0.005`, seed 7" in text
    assert "| `x` | 1 | >= 2 | **no** |" in text
    assert "| 4 x | 12.00 | srjf | 3.00 | 3.98 | 0.40 | 50% |" in text
    assert "| posts at 1 x | fifo |  | 1.50 | 1.99 | 2.00 | 50% |" in text
    assert "| posts at 1 x | 0.1 | 1,000 | 1.50 | 1.99 | 2.00 | 50% |" in text
    assert "| 30 tokens (posts) | 6 | 0.910 | 0.950 | 1.000 |" in text
    assert "| one relQuery | srjf | 0.50 | 2.0 | 9 |" in text
    assert "| plain prefilling | 100 | 1.0 | 1.0 MiB |" in text
    assert "| 2 tokens | scored | 2.00 | 2.00 | 1.00 |" in text
    for name in ("means", "p99", "aging", "lengths"):
        assert f"(prefill_only_{name}.png)" in text
        assert (tmp_path / f"prefill_only_{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_document_of_little_has_no_empty_parts() -> None:
    results = Results("random:x", (0.1, 0.1), figures=[Figure("x", None, 2.0, note="absent")])
    text = render(results, described(results), 0, set())
    assert "absent" in text
    assert ".png" not in text
    assert "\n## " not in text


@pytest.mark.parametrize("scale", [0.0, -1.0, 1.5, float("nan")])
def test_a_scale_is_a_share(scale: float) -> None:
    with pytest.raises(ConfigError, match="above 0, and at most 1"):
        Settings(quick=True, data=Path("nowhere"), scale=scale)


def test_a_small_run_yields_every_figure_without_a_value_and_writes_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill_only, "QUICK", replace(TINY, waiting=200, loads=(4.0,)))
    monkeypatch.setattr(prefill_only_lengths, "measure", lambda sizes, say: full().lengths)
    monkeypatch.setattr(prefill_only_filter, "measure", lambda *given: [])
    monkeypatch.setattr("relquery.model.stock.set_threads", lambda count: None)
    settings = Settings(quick=True, data=tmp_path, write=tmp_path)
    figures = list(prefill_only.run(settings, lambda text: None))
    assert all(figure.value is None for figure in figures)
    names = {figure.name for figure in figures}
    assert names > {"srjf_step_ms", "max_input_over_plain", "jct_proxy_pearson", "wl1_p99"}
    assert {"equal_answers", "filter_one_token"} < names
    text = (tmp_path / "prefill_only.md").read_text(encoding="utf-8")
    assert "--quick" in text
    assert "15 requests of 3\n  users" in text
    assert "{" not in text, "all is filled in"
