"""Hybrid prefilling: a step in slices that take turns, keys and values of one layer at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.executor import SCRATCH, Chunk, Drawn, Segment
from relquery.engine.requests.request import Draw
from relquery.model.attention_plan import cut, longest_slice
from relquery.model.torch_runtime.executor import Forward, TorchExecutor, leave, take_turns
from relquery.model.torch_runtime.load import TorchModel
from tests.model.oracle.architectures import ALL, LLAMA_LIKE, build, made, prepared, quick_of

LENGTH = 60
WEIGH = Draw(allowed=tuple(range(97)), weigh=True)
TOKENS = np.random.default_rng(0).integers(3, 97, LENGTH).astype(np.int32)
DYNAMIC = {"longrope", "dynamic"}  # frequencies follow the longest position of a pass


def stock(name: str) -> Any:
    if name != "mixtral":
        return build(name)
    torch.manual_seed(0)
    return made("Mixtral", LLAMA_LIKE, num_local_experts=4, num_experts_per_tok=2)().eval()


def loaded(name: str) -> TorchModel:
    """A network of its own: tests may change it."""
    return prepared(stock(name), name)


@cache
def dense(name: str) -> torch.Tensor:
    """(LENGTH, vocabulary) log-probabilities of the stock network, without any of our code."""
    with torch.inference_mode():
        ids = torch.from_numpy(TOKENS).long()[None]
        return cast(torch.Tensor, stock(name)(ids).logits[0].double().log_softmax(-1))


def close(weighed: Drawn | None, expected: torch.Tensor) -> bool:
    difference = (torch.tensor(weighed).double() - expected).abs().max()
    return bool(difference < 1e-5 * expected.abs().max())


def weighed(model: TorchModel, slice_tokens: int) -> Drawn | None:
    """Of all tokens after TOKENS, computed in slices."""
    executor = TorchExecutor(model.forward, 0, slice_tokens=slice_tokens)
    return executor.execute([Chunk(0, TOKENS, 0, (), own(LENGTH), WEIGH)])[0]


def own(count: int, start: int = 0) -> np.ndarray[Any, Any]:
    return SCRATCH + start + np.arange(count)


@quick_of({*ALL, "mixtral"} - DYNAMIC, "llama", "gpt2", "gemma3", "bloom", "falcon", "mixtral")
def test_slices_change_no_logit(name: str) -> None:
    model = loaded(name)
    for slice_tokens in (1, 7, 16, 59, 60) if name == "llama" else (7, 59):
        assert close(weighed(model, slice_tokens), dense(name)[-1])


def test_layers_may_differ_in_width() -> None:
    def wide() -> Any:
        torch.manual_seed(0)
        network = made("Llama", LLAMA_LIKE, num_hidden_layers=4)()
        for layer in network.model.layers[1::2]:  # every other layer has keys for each head
            attention, config = layer.self_attn, layer.self_attn.config
            for name in ("k_proj", "v_proj"):
                setattr(attention, name, torch.nn.Linear(config.hidden_size, 32, bias=False))
            attention.num_key_value_groups = 1
        return network.eval()

    with torch.inference_mode():
        logits = wide()(torch.from_numpy(TOKENS).long()[None]).logits[0]
    model, expected = prepared(wide()), logits[-1].double().log_softmax(-1)
    for slice_tokens in (7, 16, 100):
        assert close(weighed(model, slice_tokens), expected)


@quick_of(["llama", "gemma3", "bloom", "gpt2"], "gemma3", "bloom")
def test_a_kept_prefix_serves_the_next_prompt(name: str) -> None:
    model, expected = loaded(name), dense(name)[-1]
    for kept, slice_tokens in ((0, 8), (16, 8), (48, 8), (16, 100)):
        executor = TorchExecutor(model.forward, 64, slice_tokens=slice_tokens)
        slots = np.random.default_rng(1).permutation(64)[:kept]
        slots = np.concatenate((slots, own(LENGTH - kept)))
        (first,) = executor.execute([Chunk(0, TOKENS, 0, (), slots, WEIGH)])
        context = (Segment(slots[:kept]),) if kept else ()
        rest = TOKENS[kept:]
        (second,) = executor.execute([Chunk(1, rest, kept, context, own(len(rest)), WEIGH)])
        assert close(first, expected)
        assert close(second, expected)


@pytest.mark.parametrize("slice_tokens", [5, 17, 1_000])
def test_chunks_of_a_step_read_one_another_across_slices(slice_tokens: int) -> None:
    executor = TorchExecutor(loaded("llama").forward, 64, slice_tokens=slice_tokens)
    slots = np.concatenate((np.arange(20), own(LENGTH - 20)))
    chunks = [
        Chunk(0, TOKENS[:40], 0, (), slots[:40], WEIGH),
        Chunk(1, TOKENS[20:30], 20, (Segment(slots[:20]),), own(10, 40), WEIGH),
        Chunk(0, TOKENS[40:], 40, (Segment(slots[:40]),), slots[40:], WEIGH),
    ]
    expected = dense("llama")[[39, 29, 59]]
    assert all(map(close, executor.execute(chunks), expected))


def test_slices_without_a_token_to_draw_skip_the_last_layers_end() -> None:
    network: Any = loaded("llama").network
    last, seen = network.model.layers[-1].mlp, list[int]()
    last.register_forward_hook(lambda module, args, output: seen.append(args[0].shape[1]))
    executor = TorchExecutor(Forward(network), 0, slice_tokens=16)
    executor.execute([Chunk(0, TOKENS, 0, (), own(LENGTH), WEIGH)])
    assert seen == [LENGTH - 48]


def test_a_failing_slice_ends_the_others() -> None:
    network: Any = loaded("bloom").network
    calls: list[int] = []

    def fail(module: Any, args: Any) -> None:
        calls.append(1)
        if len(calls) == 6:
            raise RuntimeError("out of memory")

    hook = network.transformer.h[0].mlp.register_forward_pre_hook(fail)
    executor = TorchExecutor(Forward(network), 0, slice_tokens=8)
    chunk = Chunk(0, TOKENS, 0, (), own(LENGTH), WEIGH)
    with pytest.raises(RuntimeError, match="out of memory"):
        executor.execute([chunk])
    hook.remove()
    (found,) = executor.execute([chunk])
    assert close(found, dense("bloom")[-1])


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    size=st.integers(1, 40),
    before=st.integers(0, 5),
    inner=st.integers(0, 30),
)
def test_cutting_keeps_tokens_contexts_and_draws(
    lengths: list[int], size: int, before: int, inner: int
) -> None:
    def weigh(token: int) -> Draw:
        return Draw(allowed=(token,), weigh=True)

    chunks = [
        Chunk(
            number,
            np.arange(length, dtype=np.int32),
            before,
            (Segment(np.arange(before)),) if before else (),
            100 * number + np.arange(length),
            Draw(),
            inner=tuple(map(weigh, range(length - min(inner + 1, length), length - 1))),
        )
        for number, length in enumerate(lengths)
    ]
    slices = cut(chunks, size)
    parts = [part for each in slices for part in each]
    counts = [sum(len(part.tokens) for part in each) for each in slices]
    assert min(counts) > 0
    assert max(counts) <= longest_slice(size)
    assert len(slices) == -(-sum(lengths) // longest_slice(size))
    for chunk in chunks:
        own_parts = [part for part in parts if part.request == chunk.request]
        assert np.array_equal(np.concatenate([p.tokens for p in own_parts]), chunk.tokens)
        assert np.array_equal(np.concatenate([p.writes for p in own_parts]), chunk.writes)
        assert own_parts[-1].draw == Draw()
        assert [draw for p in own_parts for draw in p.draws] == list(chunk.draws)
        for part in own_parts:  # each draw of a token is in its part, behind it
            numbers = range(part.position - before, part.position - before + len(part.tokens))
            drawn = [draw.allowed[0] for draw in part.draws if draw.weigh]
            assert set(drawn) <= set(numbers)
        for part in own_parts:
            seen = [slot for segment in part.context for slot in segment.slots]
            done = part.position - chunk.position
            assert seen == [*range(before), *chunk.writes[:done]]
    full = max(size, -(-sum(lengths) // len(slices)))
    for first, second in pairwise(slices):  # no slice could have taken more
        assert sum(len(p.tokens) for p in first) == full or len(second[0].tokens) == full


def test_a_slice_is_longer_where_that_spares_one() -> None:
    def counts(tokens: int, size: int) -> list[int]:
        chunk = Chunk(0, np.arange(tokens, dtype=np.int32), 0, (), np.arange(tokens), Draw())
        return [len(part.tokens) for (part,) in cut([chunk], size)]

    assert counts(1027, 512) == [514, 513]
    assert counts(528, 512) == [528]
    assert counts(529, 512) == [512, 17]
    assert counts(1400, 512) == [512, 512, 376]
    assert counts(65, 31) == [31, 31, 3]


def test_runs_take_turns_in_order() -> None:
    seen: list[tuple[str, int]] = []

    def run(name: str) -> Callable[[Callable[[], None]], str | None]:
        def body(wait: Callable[[], None]) -> str | None:
            for turn in range(3):
                seen.append((name, turn))
                wait()
                if (name, turn) == ("b", 1):
                    leave()
            return name

        return body

    assert take_turns([run("a"), run("b"), run("c")]) == ["a", None, "c"]
    assert seen == [(name, turn) for turn in range(3) for name in "abc" if (name, turn) != ("b", 2)]
