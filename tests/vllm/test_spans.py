"""Spans by the connector: each prompt has the states of a block-diagonal mask, or an error.

The model of the stand-in knows what a state depends on: a token's is the token, its position, and
all states that it attends to, seen from itself. A rotation moves it, and what it has seen with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from relquery.errors import ConfigError
from relquery.vllm.scheduler import RelServeScheduler
from relquery.vllm.spans.composite import Composite
from relquery.vllm.spans.connector import SpanConnector
from tests.engine.harness import for_each
from tests.vllm.fake import KVConnectorFactory, KVConnectorRole, RequestStatus
from tests.vllm.test_scheduler import BLOCK, ended, few, request

State = tuple[int, int, int]
"""Token, position, and what it attends to."""


def state(token: int, position: int, seen: Sequence[State]) -> State:
    return token, position, hash((token, *((t, p - position, s) for t, p, s in seen)))


def dense(tokens: Sequence[int], spans: Sequence[int]) -> list[State]:
    """The states of a prompt that begins with spans of these lengths."""
    found: list[State] = []
    for length in spans:
        start = len(found)
        for at in range(start, start + length):
            found.append(state(tokens[at], at, found[start:at]))
    for at in range(len(found), len(tokens)):
        found.append(state(tokens[at], at, found))
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
        settings = {"relquery": {"policy": policy}}
        self.scheduler: Any = RelServeScheduler(settings, blocks, BLOCK, 64, seats)
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

    def add(self, composite: Composite, length: int) -> Any:
        """Queue a composite's spans and then itself."""
        for at, (prompt, said) in enumerate(composite.alone()):
            self.scheduler.add_request(request(f"s{at}", prompt, 1, **said))
        whole = request("whole", composite.prompt, length, **composite.said)
        self.scheduler.add_request(whole)
        return whole

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


def composed(*spans: Sequence[int], rest: Sequence[int] = (8, 9)) -> Composite:
    return Composite.of(spans, rest, block=BLOCK, pad=0)


def test_a_prompt_with_spans_has_the_states_of_a_block_diagonal_mask() -> None:
    served = Server()
    composite = composed((1, 2, 3, 4), (5, 6, 7), (1, 2, 3, 4))
    assert [len(prompt) for prompt, _ in composite.alone()] == [4, 4]
    whole = served.add(composite, 6)
    plain = request("plain", composite.prompt, 6)
    served.scheduler.add_request(plain)
    served.run()
    assert whole._output_token_ids == answer(composite.prompt, [4, 4, 4], 6)
    assert plain._output_token_ids == answer(composite.prompt, [], 6)
    assert whole._output_token_ids != plain._output_token_ids


@pytest.mark.parametrize("policy", ["fcfs", "shortest"])
@pytest.mark.parametrize("seed", few(20))
def test_storms_give_these_states_or_errors_and_leave_nothing(policy: str, seed: int) -> None:
    random = Random(seed)
    blocks, share = random.choice([40, 60, 200]), random.choice([0.1, 0.3, 0.6])
    served = Server(policy, blocks, share, random.choice([2, 8]))
    texts = [random.choices(range(9), k=random.choice([1, 3, 4, 7, 12])) for _ in range(6)]
    expected: dict[str, list[int]] = {}
    requests: dict[str, Any] = {}
    cancelled: set[str] = set()

    def add(name: str, prompt: list[int], length: int, lengths: list[int], said: Any) -> None:
        requests[name] = request(name, prompt, length, **said)
        expected[name] = answer(prompt, lengths, length)
        served.scheduler.add_request(requests[name])

    for number in range(300):
        if random.random() < 0.3 and len(served.scheduler.requests) < 30:
            rest = random.choices(range(9), k=random.randint(1, 6))
            composite = composed(*random.choices(texts, k=random.randint(1, 4)), rest=rest)
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
    error = RequestStatus.FINISHED_ERROR
    failed = {name for name, each in requests.items() if each.status == error}
    assert all(name.startswith("c") for name in failed)
    given = {name for name in requests if name.startswith("c")} - failed - cancelled
    assert len(given) > 10
    for name, each in requests.items():
        if name not in failed | cancelled:
            assert each._output_token_ids == expected[name], name
    kept, pool = served.connector.requests, served.pool
    assert (len(kept.computing), len(kept.spans), len(kept.prompts)) == (0, 0, 0)
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - kept.pinned.held
    assert pool.reset_prefix_cache()
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks


def test_what_is_said_wrongly_ends_with_an_error() -> None:
    for lengths in ([3], [4, 0], [8], [], "4", [4.0], [True], None, [4, 4, 4, 4]):
        served = Server()
        assert served.serve([1, 2, 3, 4, 5], 2, relquery_spans=lengths) == "FINISHED_ERROR"


ONE, TWO = composed((1, 2, 3, 4)), composed((1, 2, 3, 4), (5,))
((PROMPT, SAID),) = ONE.alone()


def test_a_span_that_nobody_computed_ends_with_an_error_at_once() -> None:
    served = Server()
    served.serve(PROMPT, 1, **SAID)
    assert served.serve(ONE.prompt, 2, **ONE.said) == "FINISHED_STOPPED"
    assert served.serve(TWO.prompt, 2, **TWO.said) == "FINISHED_ERROR"


def test_resetting_the_prefix_cache_drops_spans_with_it() -> None:
    served = Server()
    served.serve(PROMPT, 1, **SAID)
    assert served.pool.get_num_free_blocks() < served.pool.num_gpu_blocks
    assert served.pool.reset_prefix_cache()
    assert served.serve(ONE.prompt, 2, **ONE.said) == "FINISHED_ERROR"


def test_salts_share_no_spans() -> None:
    served = Server()
    served.serve(PROMPT, 1, salt="a", **SAID)
    for salt, status in (("b", "ERROR"), (None, "ERROR"), ("a", "STOPPED")):
        assert served.serve(ONE.prompt, 2, salt=salt, **ONE.said) == f"FINISHED_{status}"


def test_asking_for_log_probabilities_of_the_prompt_is_an_error() -> None:
    served = Server()
    whole = request("whole", TWO.prompt, 6, **TWO.said)
    whole.skip_reading_prefix_cache, whole.sampling_params.prompt_logprobs = True, 1
    for prompt, said in TWO.alone():
        served.serve(prompt, 1, **said)
    served.scheduler.add_request(whole)
    served.run()
    assert whole.status == RequestStatus.FINISHED_ERROR
    assert not whole._output_token_ids


MISFITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"kind": "SlidingWindowSpec"}, "full attention"),
    ({}, {"sliding_window": 128}, "full attention"),
    ({}, {"dtype": SimpleNamespace(is_floating_point=True, itemsize=1)}, "quantized"),
    ({"policy": "recompute"}, {}, "must be 'fail'"),
    *(({"share": share}, {}, "share") for share in (0, 1, "half")),
    ({"role": "kv_producer"}, {}, "kv_both"),
    ({"shares": 0.3}, {}, "Did you mean 'share'"),
]


@for_each("settings, model, message", MISFITS)
def test_models_that_it_does_not_fit_and_settings_that_would_mislead_are_refused(
    settings: dict[str, Any], model: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        SpanConnector(config(**settings), KVConnectorRole.SCHEDULER, cache(60, **model))


@for_each("blocks, share, most", [(60, 0.5, 30), (60, 0.9, 43), (10, 0.5, 0)])
def test_spans_leave_room_for_the_longest_prompt(blocks: int, share: float, most: int) -> None:
    assert Server(blocks=blocks, share=share).connector.requests.pinned.most == most


def test_vllm_finds_the_connector_by_its_name() -> None:
    (point,) = entry_points(group="vllm.general_plugins", name="relquery")
    for _ in range(2):  # vLLM calls it again in every process
        point.load()()
    assert KVConnectorFactory.made("SpanConnector") is SpanConnector


def test_what_makes_no_composite_is_refused() -> None:
    cases: list[tuple[Any, Any, int, Any, str]] = [
        ([(1,)], (), 4, 0, "at least one token"),
        ([], (1,), 4, 0, "at least one token"),
        ([(1,), ()], (1,), 4, 0, "at least one token"),
        (["a passage"], (2,), 4, 0, "not text"),
        ([(1,)], (2,), 0, 0, "block is 0"),
        ([(1,)], (2,), 4, None, "pad is None"),
    ]
    for spans, rest, block, pad, message in cases:
        with pytest.raises(ConfigError, match=message):
            Composite.of(spans, rest, block=block, pad=pad)
