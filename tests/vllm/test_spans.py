"""Spans by the connector: each prompt has the states of a block-diagonal mask, or an error.

The model of the stand-in knows what a state depends on: a token's is the token, its position, and
all states that it attends to, seen from itself. A rotation moves it, and what it has seen with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from relquery.errors import ConfigError
from relquery.vllm.spans.composite import Composite
from tests.engine.harness import for_each
from tests.vllm.test_scheduler import ended, few, request

pytestmark = pytest.mark.usefixtures("stubs")
BLOCK = 4
State = tuple[int, int, int]
"""Token, position, and what it attends to."""


def state(token: int, position: int, seen: Sequence[State]) -> State:
    return token, position, hash((token, *((t, p - position, s) for t, p, s in seen)))


def dense(tokens: Sequence[int], spans: Sequence[int]) -> list[State]:
    """The states of a prompt that begins with spans of these lengths."""
    found: list[State] = []
    start = 0
    for length in spans:
        for at in range(start, start + length):
            found.append(state(tokens[at], at, found[start:at]))
        start += length
    for at in range(start, len(tokens)):
        found.append(state(tokens[at], at, found[:at]))
    return found


def answer(prompt: Sequence[int], spans: Sequence[int], length: int) -> list[int]:
    tokens = [*prompt]
    found = dense(prompt, spans)
    for _ in range(length):
        tokens.append(found[-1][2] % 1000)
        found.append(state(tokens[-1], len(tokens) - 1, found))
    return tokens[len(prompt) :]


class Server:
    """vLLM's scheduler with our policy and our connector, and a worker that computes states."""

    def __init__(
        self, policy: str = "fcfs", blocks: int = 60, share: float = 0.5, seats: int = 4
    ) -> None:
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        from relquery.vllm import RelServeScheduler
        from relquery.vllm.spans import SpanConnector

        self.scheduler = RelServeScheduler(
            {"relquery": {"policy": policy}}, blocks, BLOCK, 64, seats
        )
        given = config(share=share), KVConnectorRole.SCHEDULER, cache(blocks)
        self.scheduler.connector = self.connector = SpanConnector(*given)
        self.connector.bind_gpu_block_pool(self.pool)
        self.worker = SpanConnector(given[0], KVConnectorRole.WORKER, given[2])
        self.worker.copier = self
        self.states: dict[tuple[int, int], State] = {}  # by block and place in it

    @property
    def pool(self) -> Any:
        return self.scheduler.kv_cache_manager.block_pool

    def copy(self, sources: list[int], targets: list[int], by: list[int]) -> None:
        """What the worker's copier does."""
        assert not set(sources) & set(targets)
        for source, target, moved in zip(sources, targets, by, strict=True):
            for place in range(BLOCK):
                token, position, seen = self.states[source, place]
                self.states[target, place] = token, position + moved, seen

    def step(self) -> list[str]:
        output = self.scheduler.schedule()
        self.worker.bind_connector_metadata(output.kv_connector_metadata)
        self.worker.start_load_kv(None)
        self.scheduler.invalid = self.worker.get_block_ids_with_load_errors()
        for name, count in output.num_scheduled_tokens.items():
            self._compute(self.scheduler.requests[name], count)
        return ended(self.scheduler.update_from_output(output, self._drawn))

    def run(self) -> None:
        """Serve all."""
        for _ in range(5_000):
            if not self.scheduler.requests:
                return
            self.step()
        raise AssertionError("no end is in sight")

    def serve(self, prompt: list[int], length: int, salt: str | None = None, **said: Any) -> str:
        """The name of the status with which a request ends that is alone."""
        served = request("alone", prompt, length, **said)
        served.cache_salt = salt
        self.scheduler.add_request(served)
        self.run()
        return str(served.status.name)

    def _places(self, served: Any) -> list[tuple[int, int]]:
        held = self.scheduler.held[served.request_id]
        return [(block.block_id, place) for block in held for place in range(BLOCK)]

    def _compute(self, served: Any, count: int) -> None:
        tokens = [*served.prompt_token_ids, *served._output_token_ids]
        places = self._places(served)
        end = served.num_computed_tokens
        for at in range(end - count, end):
            # What could not be loaded is computed like the rest; nobody reads it.
            seen = [self.states.get(place, (0, 0, 0)) for place in places[:at]]
            self.states[places[at]] = state(tokens[at], at, seen)

    def _drawn(self, served: Any) -> int:
        return self.states[self._places(served)[served.num_tokens - 1]][2] % 1000


def config(share: float = 0.5, policy: str = "fail", role: str = "kv_both", **extra: Any) -> Any:
    transfer = SimpleNamespace(
        kv_load_failure_policy=policy,
        kv_role=role,
        kv_connector_extra_config={"share": share, **extra},
    )
    return SimpleNamespace(
        kv_transfer_config=transfer, model_config=SimpleNamespace(max_model_len=64)
    )


def cache(blocks: int, kind: str = "FullAttentionSpec", **other: Any) -> Any:
    dtype = SimpleNamespace(is_floating_point=True, itemsize=4)
    given = {"block_size": BLOCK, "sliding_window": None, "dtype": dtype, **other}
    spec = type(kind, (SimpleNamespace,), {})(**given)
    return SimpleNamespace(num_blocks=blocks, kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec)])


@lru_cache
def texts(seed: int) -> list[tuple[int, ...]]:
    random = Random(seed)
    return [
        tuple(random.randrange(9) for _ in range(random.choice([1, 3, 4, 7, 12]))) for _ in range(6)
    ]


def test_a_prompt_with_spans_has_the_states_of_a_block_diagonal_mask() -> None:
    served = Server()
    spans = [(1, 2, 3, 4), (5, 6, 7), (1, 2, 3, 4)]
    composite = Composite.of(spans, (8, 9), block=BLOCK, pad=0)
    assert [len(prompt) for prompt, _ in composite.alone()] == [4, 4]
    for at, (prompt, said) in enumerate(composite.alone()):
        served.scheduler.add_request(request(f"s{at}", prompt, 1, **said))
    whole = request("whole", composite.prompt, 6, **composite.said)
    plain = request("plain", composite.prompt, 6)
    served.scheduler.add_request(whole)
    served.scheduler.add_request(plain)
    served.run()
    assert whole._output_token_ids == answer(composite.prompt, [4, 4, 4], 6)
    assert plain._output_token_ids == answer(composite.prompt, [], 6)
    assert whole._output_token_ids != plain._output_token_ids


@pytest.mark.parametrize("policy", ["fcfs", "shortest"])
@pytest.mark.parametrize("seed", few(20))
def test_storms_give_these_states_or_errors_and_leave_nothing(policy: str, seed: int) -> None:
    from vllm.v1.request import RequestStatus

    random = Random(seed)
    served = Server(
        policy, random.choice([40, 60, 200]), random.choice([0.1, 0.3, 0.6]), random.choice([2, 8])
    )
    expected: dict[str, list[int]] = {}
    requests: dict[str, Any] = {}
    cancelled: set[str] = set()

    def add(name: str, prompt: list[int], length: int, lengths: list[int], said: Any) -> None:
        requests[name] = request(name, prompt, length, **said)
        expected[name] = answer(prompt, lengths, length)
        served.scheduler.add_request(requests[name])

    for number in range(300):
        if random.random() < 0.3 and len(served.scheduler.requests) < 30:
            spans = random.choices(texts(seed), k=random.randint(1, 4))
            rest = [random.randrange(9) for _ in range(random.randint(1, 6))]
            composite = Composite.of(spans, rest, block=BLOCK, pad=0)
            lengths = [len(span) for span in composite.spans]
            if random.random() < 0.9:  # otherwise some may be missing
                for at, (prompt, said) in enumerate(composite.alone()):
                    add(f"s{number}-{at}", prompt, 1, [], said)
            add(f"c{number}", composite.prompt, random.randint(1, 8), lengths, composite.said)
            if random.random() < 0.5:
                add(f"p{number}", composite.prompt, random.randint(1, 8), [], {})
        if served.scheduler.requests and random.random() < 0.05:
            name = random.choice([*served.scheduler.requests])
            cancelled.add(name)
            served.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        served.step()
    served.run()
    failed = {
        name for name, each in requests.items() if each.status == RequestStatus.FINISHED_ERROR
    }
    assert all(name.startswith("c") for name in failed)
    given = {name for name in requests if name.startswith("c")} - failed - cancelled
    assert len(given) > 10
    for name, each in requests.items():
        if name not in failed | cancelled:
            assert each._output_token_ids == expected[name], name
    connector, pool = served.connector, served.pool
    assert not connector.requests.computing
    assert not connector.requests.spans
    assert not connector.requests.prompts
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - connector.requests.pinned.held
    assert pool.reset_prefix_cache()
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks


def test_what_is_said_wrongly_ends_with_an_error() -> None:
    for lengths in ([3], [4, 0], [8], [], "4", [4.0], [True], None, [4, 4, 4, 4]):
        served = Server()
        assert served.serve([1, 2, 3, 4, 5], 2, relquery_spans=lengths) == "FINISHED_ERROR"


ONE, TWO = (
    Composite.of(spans, (8, 9), block=BLOCK, pad=0)
    for spans in ([(1, 2, 3, 4)], [(1, 2, 3, 4), (5,)])
)


def test_a_span_that_nobody_computed_ends_with_an_error_at_once() -> None:
    served = Server()
    prompt, said = next(iter(TWO.alone()))
    served.serve(prompt, 1, **said)
    assert served.serve(ONE.prompt, 2, **ONE.said) == "FINISHED_STOPPED"
    assert served.serve(TWO.prompt, 2, **TWO.said) == "FINISHED_ERROR"


def test_resetting_the_prefix_cache_drops_spans_with_it() -> None:
    served = Server()
    ((prompt, said),) = ONE.alone()
    served.serve(prompt, 1, **said)
    assert served.pool.get_num_free_blocks() < served.pool.num_gpu_blocks
    assert served.pool.reset_prefix_cache()
    assert served.serve(ONE.prompt, 2, **ONE.said) == "FINISHED_ERROR"


def test_salts_share_no_spans() -> None:
    served = Server()
    ((prompt, said),) = ONE.alone()
    served.serve(prompt, 1, salt="a", **said)
    for salt, status in (("b", "ERROR"), (None, "ERROR"), ("a", "STOPPED")):
        assert served.serve(ONE.prompt, 2, salt=salt, **ONE.said) == f"FINISHED_{status}"


def test_asking_for_log_probabilities_of_the_prompt_is_an_error() -> None:
    from vllm.v1.request import RequestStatus

    served = Server()
    composite = Composite.of([(1, 2, 3, 4), (5, 6)], (8, 9), block=BLOCK, pad=0)
    for at, (prompt, said) in enumerate(composite.alone()):
        served.scheduler.add_request(request(f"s{at}", prompt, 1, **said))
    whole = request("whole", composite.prompt, 6, **composite.said)
    whole.skip_reading_prefix_cache, whole.sampling_params.prompt_logprobs = True, 1
    served.scheduler.add_request(whole)
    served.run()
    assert whole.status == RequestStatus.FINISHED_ERROR
    assert not whole._output_token_ids


@for_each(
    "settings, model, message",
    [
        ({}, {"kind": "SlidingWindowSpec"}, "full attention"),
        ({}, {"sliding_window": 128}, "full attention"),
        ({}, {"dtype": SimpleNamespace(is_floating_point=True, itemsize=1)}, "quantized"),
        ({"policy": "recompute"}, {}, "must be 'fail'"),
        ({"share": 1.5}, {}, "share"),
        ({"role": "kv_producer"}, {}, "kv_both"),
        ({"shares": 0.3}, {}, "Did you mean 'share'"),
    ],
)
def test_models_that_it_does_not_fit_and_settings_that_would_mislead_are_refused(
    settings: dict[str, Any], model: dict[str, Any], message: str
) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

    from relquery.vllm.spans import SpanConnector

    with pytest.raises(ConfigError, match=message):
        SpanConnector(config(**settings), KVConnectorRole.SCHEDULER, cache(60, **model))


def test_vllm_finds_the_connector_by_its_name() -> None:
    from importlib.metadata import entry_points

    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    from relquery.vllm.spans import SpanConnector

    (point,) = entry_points(group="vllm.general_plugins", name="relquery")
    for _ in range(2):  # vLLM calls it again in every process
        point.load()()
    assert KVConnectorFactory.made("SpanConnector") is SpanConnector


@for_each(
    "spans, rest, block, pad, message",
    [
        ([(1,)], (), 4, 0, "at least one token"),
        ([], (1,), 4, 0, "at least one token"),
        ([(1,), ()], (1,), 4, 0, "at least one token"),
        (["a passage"], (2,), 4, 0, "not text"),
        ([(1,)], (2,), 0, 0, "block is 0"),
        ([(1,)], (2,), 4, None, "pad is None"),
    ],
)
def test_what_makes_no_composite_is_refused(
    spans: Any, rest: Any, block: int, pad: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Composite.of(spans, rest, block=block, pad=pad)
