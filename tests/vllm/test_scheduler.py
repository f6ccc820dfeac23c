"""vLLM's scheduler with our policies: the same answers, in their order, and nothing left over."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from relquery.engine.scheduling.plan import Plan
from relquery.errors import ConfigError
from relquery.vllm.mirror import Mirror
from relquery.vllm.scheduler import RelServeScheduler
from relquery.vllm.settings import VLLM_POLICIES, PluginSettings
from tests.engine.harness import for_each
from tests.vllm.fake import PauseState, Request, RequestStatus, SamplingParams

BLOCK = 4
PRIORITIES = ("static", "relserve", "shortest")


def few(seeds: int) -> list[Any]:
    """Numbers of storms, of which the quick run takes the first two."""
    return [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, seeds))]


def scheduler(
    policy: str, blocks: int = 60, tokens: int = 48, seats: int = 8, **fairness: Any
) -> Any:
    config = {"relquery": {"policy": policy, **fairness}}
    return RelServeScheduler(config, blocks, BLOCK, tokens, seats)


def test_a_policy_of_vllm_that_ours_would_ignore_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"--scheduling-policy priority .*relquery_deadline"):
        RelServeScheduler({"policy_of_vllm": "priority"}, 60, BLOCK, 48, 8)


def request(name: str, prompt: list[int], answer: int, **said: Any) -> Request:
    return Request(name, prompt, answer, BLOCK, SamplingParams(extra_args=said))


def add(served: Any, name: str, prompt: int, answer: int, count: int = 1, **said: Any) -> None:
    """Queue requests of that many tokens each, of which no two have a prefix in common."""
    for number in range(count):
        tokens = [len(served.requests)] * prompt
        served.add_request(request(f"{name}{number}", tokens, answer, **said))


def add_blocked(served: Any, answer: int, **said: Any) -> None:
    """Queue a request whose grammar is still being made."""
    made = request("blocked", [3] * 9, answer, **said)
    made.status = RequestStatus.WAITING_FOR_GRAMMAR
    served.add_request(made)


def at_times(served: Any) -> Callable[[float], None]:
    """Sets the time that a scheduler reads."""
    now = [0.0]
    served._mirror.now = lambda: now[0]
    return lambda time: now.__setitem__(0, time)


def drawn(request: Any) -> int:
    """The next token: it depends on all before it."""
    return hash((*request.prompt_token_ids, *request._output_token_ids)) % 1000


def answer(prompt: list[int], length: int) -> list[int]:
    tokens = [*prompt]
    for _ in range(length):
        tokens.append(hash(tuple(tokens)) % 1000)
    return tokens[len(prompt) :]


def step(served: Any) -> list[str]:
    output = served.schedule()
    scheduled = output.num_scheduled_tokens
    assert sum(scheduled.values()) <= served.max_num_scheduled_tokens
    return ended(served.update_from_output(output, drawn))


def ended(outputs: dict[int, Any]) -> list[str]:
    """The requests whose clients hear of their end."""
    return [each.request_id for client in outputs.values() for each in client.outputs]


def reset_cache(served: Any) -> None:
    """As vLLM does when the weights have changed: all running requests wait again."""
    while served.running:
        served._preempt_request(served.running.pop(), 0.0)
    assert served.kv_cache_manager.block_pool.reset_prefix_cache()


def is_empty(served: Any) -> bool:
    mirror = served._mirror
    pool = served.kv_cache_manager.block_pool
    return (
        not served.requests
        and not mirror.by_id
        and not mirror.open
        and not mirror.open.relqueries
        and pool.get_num_free_blocks() == pool.num_gpu_blocks
    )


@pytest.mark.parametrize("policy", VLLM_POLICIES)
@pytest.mark.parametrize("seed", few(12))
def test_storms_end_with_the_right_answers_and_nothing_left(policy: str, seed: int) -> None:
    random = Random(seed)
    blocks = [14, 17, 20, 24, 40, 200][seed % 6]
    fairness: dict[str, Any] = (
        {"starvation": 1e-4} if policy in PRIORITIES and seed % 3 == 1 else {}
    )
    served = scheduler(policy, blocks=blocks, seats=random.choice([2, 8]), **fairness)
    served.long_prefill_token_threshold = [0, 0, 4, 7][seed % 4]
    longest = min(30, blocks * BLOCK - 40)  # with a head and an answer it fits into the cache
    heads = [[random.randrange(9) for _ in range(random.randrange(24))] for _ in range(3)]
    expected: dict[str, list[int]] = {}
    requests: dict[str, Any] = {}
    for number in range(400):
        if number < 60 or (len(expected) < 80 and random.random() < 0.2):
            name, own = f"r{number}", random.choices(range(9), k=random.randint(1, longest))
            prompt = [*random.choice(heads), *own]
            length = random.randint(1, 12)
            said = random.choice([{}, {"relquery": f"q{random.randrange(5)}", "relquery_rows": 9}])
            requests[name] = request(name, prompt, length, **said)
            expected[name] = answer(prompt, length)
            served.add_request(requests[name])
        if served.requests and random.random() < 0.03:
            cancelled = random.choice([*served.requests])
            served.finish_requests(cancelled, RequestStatus.FINISHED_ABORTED)
            expected[cancelled] = requests[cancelled]._output_token_ids
        if random.random() < 0.02:
            reset_cache(served)
        step(served)
    serve(served)
    assert {name: each._output_token_ids for name, each in requests.items()} == expected


@pytest.mark.parametrize("policy", PRIORITIES)
@pytest.mark.parametrize("seed", few(14))
def test_long_prompts_that_all_starve_end_though_few_fit(policy: str, seed: int) -> None:
    """Each takes many steps, and vLLM gives its blocks bit by bit."""
    random = Random(seed)
    blocks, part, seats = random.choice([30, 40, 50]), random.choice([2, 4]), random.choice([3, 4])
    served = scheduler(policy, blocks=blocks, tokens=400, seats=seats, starvation=1e-6)
    served.long_prefill_token_threshold = part
    for number in range(12):
        prompt = [number] * random.randrange(20, 4 * blocks - 30)
        said = {"relquery": f"q{random.randrange(6)}", "relquery_rows": random.choice([1, 2, 3])}
        served.add_request(request(f"r{number}", prompt, 3, **said))
    assert len(serve(served)) == 12


def serve(served: Any) -> list[str]:
    """Serve all, and nothing may be left over; who ended, in order."""
    done = list[str]()
    for _ in range(3_000):
        if not served.requests:
            break
        done += step(served)
    assert is_empty(served)
    return done


@for_each("policy, last", [("fcfs", "short"), ("shortest", "long"), ("relserve", "long")])
def test_policies_decide_who_ends_first(policy: str, last: str) -> None:
    served, done = scheduler(policy, blocks=400, seats=4), list[str]()
    add(served, "long", 12, 6, 40, relquery="long")
    for _ in range(3):
        done += step(served)
    add(served, "short", 12, 2, 2, relquery="short")
    assert (done + serve(served))[-1].startswith(last)


def test_a_request_that_waits_for_its_grammar_holds_nobody_up() -> None:
    served = scheduler("shortest")
    add_blocked(served, 2)
    add(served, "free", 3, 2)
    assert [name for _ in range(6) for name in step(served)] == ["free0"]
    served.ready.add("blocked")
    assert [name for _ in range(6) for name in step(served)] == ["blocked"]
    assert is_empty(served)


def begun(served: Any, *, ahead: bool) -> list[str]:
    """The requests in the order in which they begin. ahead: each step is scheduled before the
    tokens of the last one are there, as vLLM does when it schedules asynchronously."""
    found: list[str] = []
    under_way: list[Any] = []
    while served.requests:
        output = served.schedule()
        found += [name for name in output.num_scheduled_tokens if name not in found]
        under_way.append(output)
        if len(under_way) > ahead or not output.num_scheduled_tokens:
            served.update_from_output(under_way.pop(0), drawn)
    return found


@for_each("ahead", [False, True])
@for_each("policy", ["static", "relserve", "shortest", "srjf"])
def test_policies_decide_who_begins_also_when_tokens_are_still_being_drawn(
    policy: str, ahead: bool
) -> None:
    served = scheduler(policy, seats=1)
    add(served, "long", 40, 1, 5, relquery="long", relquery_rows=5)
    for name in "abc":
        add(served, name, 8, 1, relquery=name, relquery_rows=1)
    names = begun(served, ahead=ahead)
    assert names[:3] == ["a0", "b0", "c0"]
    assert len(names) == 8


def test_after_a_pause_a_policy_decides_who_begins() -> None:
    served = scheduler("shortest", seats=1)
    served.pause_state = PauseState.PAUSED_NEW
    add(served, "long", 40, 1, 3, relquery="long")
    add(served, "short", 8, 1, relquery="short")
    assert not served.schedule().num_scheduled_tokens
    served.pause_state = PauseState.UNPAUSED
    assert begun(served, ahead=False)[0] == "short0"


@for_each("name", [0, 7, "q"])
def test_any_name_makes_requests_one_relquery(name: object) -> None:
    served = scheduler("shortest", seats=1)
    add(served, "long", 40, 1, 3, relquery=name, relquery_rows=3)
    add(served, "short", 30, 1, 2, relquery="s", relquery_rows=2)
    assert begun(served, ahead=False)[:2] == ["short0", "short1"]


SAME, OTHER = {"relquery": "q", "relquery_tenant": "a"}, {"relquery": "q", "relquery_tenant": "b"}


@for_each(
    "said, salts, count",
    [
        (({"relquery": "q"}, {"relquery": "q"}), ("", ""), 1),
        (({"relquery": "q"}, {"relquery": "q"}), ("x", "y"), 2),
        ((SAME, SAME), ("x", "y"), 1),
        ((SAME, OTHER), ("", ""), 2),
        (({"relquery": ""}, {"relquery": ""}), ("", ""), 2),
        (({}, {}), ("", ""), 2),
    ],
)
def test_requests_of_one_name_and_tenant_are_one_relquery(
    said: Any, salts: Any, count: int
) -> None:
    served = scheduler("shortest")
    for number, (each, salt) in enumerate(zip(said, salts, strict=True)):
        made = request(f"r{number}", [number] * 9, 1, **each)
        made.cache_salt = salt
        served.add_request(made)
    assert len(served._mirror.open.relqueries) == count


def test_answers_alone_count_as_lengths_and_what_is_cached_is_not_computed() -> None:
    served = scheduler("shortest")
    known = served._mirror.experience
    served.add_request(request("answered", [1] * 9, 3))
    serve(served)
    assert (known.limit, known.drawn, known.admitted, known.computed) == (3, 3, 9, 9)
    served.add_request(request("aborted", [1] * 9, 50))
    step(served)
    served.finish_requests("aborted", RequestStatus.FINISHED_ABORTED)
    assert (known.limit, known.drawn, known.admitted, known.computed) == (3, 3, 18, 10)


def test_a_deadline_needs_no_name_and_runs_while_a_grammar_is_made() -> None:
    served = scheduler("shortest", seats=1)
    at = at_times(served)
    add(served, "long", 9, 50)
    add(served, "nameless", 9, 20, relquery_deadline=5.0)
    add_blocked(served, 20, relquery_deadline=5.0)
    assert step(served) == []
    at(6.0)
    assert sorted(step(served)) == ["blocked", "nameless0"]
    serve(served)


def test_the_deadline_of_a_request_that_waited_for_its_grammar_counts_from_when_it_came() -> None:
    served = scheduler("shortest", seats=1)
    at = at_times(served)
    add_blocked(served, 500, relquery_deadline=5.0)
    served.ready.add("blocked")
    for time, gone in ((3.0, []), (4.9, []), (5.1, ["blocked"])):
        at(time)
        assert step(served) == gone
    assert is_empty(served)


def test_a_late_relquery_ends_without_an_answer_and_its_clients_hear_of_it() -> None:
    served = scheduler("shortest", seats=2)
    at = at_times(served)
    add(served, "r", 9, 20, 6, relquery="q", relquery_deadline=5.0)
    step(served)
    at(6.0)
    outputs = served.update_from_output(served.schedule(), drawn)
    assert sorted(ended(outputs)) == [f"r{number}" for number in range(6)]
    assert {each.finish_reason.name for each in outputs[0].outputs} == {"ABORT"}
    assert is_empty(served)
    assert served.update_from_output(served.schedule(), drawn) == {}


def test_what_is_declared_wrongly_is_not_believed_and_hurts_nobody() -> None:
    served = scheduler("shortest")
    add(served, "r", 9, 2, relquery="q", relquery_rows=-3, relquery_deadline="x")
    serve(served)


@pytest.mark.long
def test_planning_makes_few_calls_per_scheduled_request(monkeypatch: pytest.MonkeyPatch) -> None:
    served = scheduler("shortest", blocks=20_000, tokens=512, seats=128)
    for number in range(2_000):
        name, prompt = f"q{number % 50}", [number % 50] * 64 + [number] * 16
        served.add_request(request(f"r{number}", prompt, 8, relquery=name))
    plan, calls, scheduled = Mirror.plan, list[str](), 0

    def counted(mirror: Mirror) -> Plan:
        before = sys.getprofile()
        sys.setprofile(lambda _, event, __: calls.append(event))
        try:
            return plan(mirror)
        finally:
            sys.setprofile(before)

    monkeypatch.setattr(Mirror, "plan", counted)
    while served.requests:
        output = served.schedule()
        scheduled += len(output.num_scheduled_tokens)
        served.update_from_output(output, drawn)
    # Calls, not seconds, so that it holds on any machine; bench vllm measures the seconds.
    assert scheduled > 10_000
    assert (calls.count("call") + calls.count("c_call")) / scheduled < 12


@for_each(
    "given, message",
    [
        ({"policy": "sarathi"}, "policy"),
        ({"policy": "srjf", "tail": 1}, "no effect under the policy srjf"),
        ({"polcy": "fcfs"}, "Did you mean 'policy'"),
        ({"cost": {"slope": 1}}, "cost must be"),
        ({"cost": "nowhere.json"}, "nowhere.json"),
        ("shortest", "must be an object"),
    ],
)
def test_wrong_settings_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PluginSettings.of({"relquery": given})


def test_without_settings_the_default_policy_runs() -> None:
    assert PluginSettings.of(None) == PluginSettings.of({}) == PluginSettings()


@for_each("at", range(1, 14))
def test_requests_that_vllm_preempts_between_steps_wait_again(at: int) -> None:
    served = scheduler("shortest", 8, 16, 4, starvation=[None, 0.0][at % 2])
    prompts = {f"r{number}": [number] * 12 for number in range(2)}
    requests = {name: request(name, prompt, 12) for name, prompt in prompts.items()}
    for each in requests.values():
        served.add_request(each)
    for number in range(200):
        if number == at:
            reset_cache(served)
        if not served.requests:
            break
        step(served)
    assert is_empty(served)
    for name, each in requests.items():
        assert each._output_token_ids == answer(prompts[name], 12)


@pytest.mark.parametrize("seed", few(4))
def test_a_policy_is_told_of_every_block_that_enters_or_leaves_the_cache(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, served = Random(seed), scheduler("srjf", blocks=20, seats=4)
    pool, plan = served.kv_cache_manager.block_pool, Mirror.plan
    before, told = set[bytes](), 0

    def compared(mirror: Mirror) -> Plan:
        nonlocal before, told
        now = {block.hash for block in pool.blocks if block.hash is not None}
        mirror.pool.begin()
        assert before ^ now <= set(mirror.pool.changes)
        before, told = now, told + len(before ^ now)
        return plan(mirror)

    monkeypatch.setattr(Mirror, "plan", compared)
    for number in range(60):
        prompt = [random.randrange(3) for _ in range(random.randint(1, 40))]
        served.add_request(request(f"r{number}", prompt, random.randint(1, 8)))
        if random.random() < 0.1:
            reset_cache(served)
        step(served)
    serve(served)
    assert told > 300
