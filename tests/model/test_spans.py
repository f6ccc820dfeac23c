"""Independent spans in the engine, against the stock network under an explicit block mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.requests.pieces import At, Chain, Placeholder
from relquery.engine.requests.request import Request
from tests.model.oracle.architectures import (
    VOCABULARY,
    engine_of,
    finished,
    model_of,
    placing_of,
    quick_of,
)
from tests.model.oracle.dense import dense_logits
from tests.model.oracle.recorded import Recorded, RecordedNative

Spec = tuple[Any, ...]
"""Token ids, independent spans as tuples of the same, `At`, and `Placeholder`."""
ARCHITECTURES = [
    "llama", "qwen3", "gemma3", "gpt2", "opt", "gpt_neox", "bloom", "mpt", "falcon",
]  # fmt: skip
ANSWER = 3  # tokens


def engine_chain(spec: Spec) -> Chain:
    return Chain(
        tuple(engine_chain(part) if isinstance(part, tuple) else _plain(part) for part in spec)
    )


def dense_chain(spec: Spec) -> Any:
    return tuple(dense_chain(part) if isinstance(part, tuple) else _plain(part) for part in spec)


def _plain(part: Any) -> Any:
    return np.array([part], np.int32) if isinstance(part, int) else part


def check(
    name: str,
    specs: Sequence[Spec],
    answer: int = ANSWER,
    runtime: str = "torch",
    **limits: Any,
) -> list[Request]:
    """Every token is drawn from the logits that the dense reference has there."""
    model, stock = model_of(name, runtime)
    kind = RecordedNative if runtime == "native" else Recorded
    engine = engine_of(model, kind, **{"cache_tokens": 2048, "block_size": 4} | limits)
    placing = placing_of(model)
    requests = [
        Request(i, engine_chain(spec), answer, placing=placing) for i, spec in enumerate(specs)
    ]
    list(finished(engine, requests))
    executor: Any = engine._executor
    for request, spec in zip(requests, specs, strict=True):
        expected = dense_logits(stock, dense_chain((*spec, *request.output)))
        found = torch.stack(executor.logits[request.id])
        first = request.prompt_tokens - 1
        wanted = expected[first : first + len(found)]
        assert (found - wanted).abs().max() <= 1e-4 * max(1.0, float(wanted.abs().max()))
        assert request.output == wanted.argmax(-1).tolist()
    return requests


TOKEN = st.integers(3, VOCABULARY - 1)


@st.composite
def prompts(draw: st.DrawFn) -> list[Spec]:
    """Prompts over a few common spans, in any order, some of them in spans of spans."""
    length = st.integers(0, 11)
    pool: list[Spec] = [
        tuple(draw(st.lists(TOKEN, min_size=n, max_size=n)))
        for n in draw(st.lists(length, min_size=1, max_size=3))
    ]
    inner = st.lists(st.sampled_from(pool) | TOKEN, max_size=4).map(tuple)
    pool += draw(st.lists(inner, max_size=2))
    part = st.sampled_from(pool) | TOKEN
    tail = st.lists(TOKEN, min_size=1, max_size=6)
    prompt = st.tuples(st.lists(part, max_size=5), tail).map(lambda both: (*both[0], *both[1]))
    return draw(st.lists(prompt, min_size=1, max_size=4))


@st.composite
def schemas(draw: st.DrawFn) -> list[Spec]:
    """Prompts that import modules of one schema, with arguments and text in gaps (paper 001).

    A module has placeholders and gaps of its own. Whatever is imported keeps its position; what
    is new has any position, before modules too, and the answer follows the end.
    """
    modules: list[tuple[int, Spec]] = []
    begin = 0
    for _ in range(draw(st.integers(1, 4))):
        parts: list[Any] = []
        length = 0
        for _ in range(draw(st.integers(1, 3))):
            own = draw(st.lists(TOKEN, min_size=1, max_size=9))
            parts += own
            length += len(own)
            match draw(st.sampled_from(["placeholder", "gap", "none"])):
                case "placeholder":
                    ids = draw(st.lists(TOKEN, min_size=1, max_size=5))
                    parts.append(Placeholder(np.array(ids, np.int32)))
                    length += len(ids)
                case "gap":
                    length += draw(st.integers(1, 6))
                    parts.append(At(length))
        if isinstance(parts[-1], At):
            parts.pop()
        modules.append((begin, tuple(parts)))
        begin += length + draw(st.integers(0, 3))
    prompts = []
    for _ in range(draw(st.integers(1, 4))):
        imported = draw(st.lists(st.sampled_from(modules), unique_by=lambda m: m[0], max_size=4))
        parts = [part for at, module in imported for part in (At(at), module)]
        for _ in range(draw(st.integers(0, 2))):
            parts += [
                At(draw(st.integers(0, begin))),
                *draw(st.lists(TOKEN, min_size=1, max_size=5)),
            ]
        parts += [At(begin + 8), *draw(st.lists(TOKEN, min_size=1, max_size=4))]
        prompts.append(tuple(parts))
    return prompts


# Positions that rotate, with and without windows, and positions that are biases; others are long.
LIMITS = st.fixed_dictionaries(
    {
        "max_num_batched_tokens": st.sampled_from([3, 16, 2048]),
        "segment_sharing": st.booleans(),
    }
)
SMALL = st.fixed_dictionaries(
    {
        "cache_tokens": st.sampled_from([16, 48, 2048]),
        "slice_tokens": st.sampled_from([2, 7, 2048]),
    }
)


@quick_of(ARCHITECTURES, "gemma3", "bloom")
@given(specs=prompts(), limits=LIMITS)
def test_logits_are_those_of_a_dense_network_with_a_block_mask(
    name: str, specs: list[Spec], limits: dict[str, Any]
) -> None:
    check(name, specs, **limits)


@quick_of(ARCHITECTURES, "bloom")
@given(specs=schemas(), limits=LIMITS)
def test_modules_with_gaps_and_arguments_are_those_of_a_dense_network(
    name: str, specs: list[Spec], limits: dict[str, Any]
) -> None:
    check(name, specs, **limits)


@quick_of(ARCHITECTURES, "gemma3", "gpt2")
@given(specs=prompts() | schemas(), limits=SMALL)
def test_answers_of_one_pass_are_those_of_a_dense_network_in_any_cache_and_slices(
    name: str, specs: list[Spec], limits: dict[str, Any]
) -> None:
    room: dict[str, Any] = {"max_input": 400, "max_num_seqs": 1}
    check(name, [*specs, *specs], answer=1, **limits, **room)


RNG = np.random.default_rng(0)
PASSAGES = [tuple(RNG.integers(3, VOCABULARY, n).tolist()) for n in (21, 16, 30, 7)]
SYSTEM, QUESTION = (5, 6, 7, 8, 9), (11, 12)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_passages_in_another_order_are_found_in_the_cache_where_that_is_possible(name: str) -> None:
    orders = [(0, 1, 2, 3), (3, 1, 0, 2), (2, 2, 1)]
    specs = [(*SYSTEM, *(PASSAGES[i] for i in order), *QUESTION) for order in orders]
    served = [request.cached for request in check(name, specs, max_num_seqs=1)]
    if model_of(name)[0].positions.relocatable:
        assert served[1:] == [5 + 74, 5 + 30 + 30 + 16]
    else:  # the system prompt, and what stands where it stood
        assert served[1] == 5


def test_an_inner_generation_is_found_with_its_input_and_output() -> None:
    inner = [(*SYSTEM, *QUESTION, 20 + i) for i in range(3)]
    answered = check("gemma3", inner)
    spans = [(*spec, *one.output) for spec, one in zip(inner, answered, strict=True)]
    outer = check("gemma3", [*inner, (3, 4, *spans, *QUESTION)], max_num_seqs=3)[-1]
    assert outer.cached is not None
    assert outer.cached >= sum(len(span) // 4 * 4 for span in spans) - 3 * 4


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_one_span_at_two_positions_at_once(name: str) -> None:
    """Both requests decode in the same steps, and each gets what it would get alone."""
    span = PASSAGES[2]
    specs = [(*SYSTEM, span, *QUESTION), (*PASSAGES[0], *PASSAGES[1], span, *QUESTION)]
    alone = [check(name, [spec])[0] for spec in [*specs, *specs[::-1]]]
    both = check(name, [*specs, *specs[::-1]], max_num_seqs=3)
    assert [r.output for r in both] == [r.output for r in alone]


def test_a_span_is_never_served_where_full_attention_is_due_nor_the_reverse() -> None:
    span = PASSAGES[0]
    as_span, plain = (*SYSTEM, span, *QUESTION), (*SYSTEM, *span, *QUESTION)
    for specs in ([as_span, plain], [plain, as_span]):
        requests = check("llama", specs, max_num_seqs=1)
        assert requests[1].cached == 4, "the full block of the system prompt alone"


def test_a_prompt_that_begins_with_a_span_shares_it_with_one_that_is_plain() -> None:
    span = PASSAGES[2]
    requests = check("llama", [(*span, *QUESTION), (span, *QUESTION)], max_num_seqs=1)
    assert requests[1].cached == len(span) // 4 * 4


def test_a_network_whose_frequencies_follow_the_longest_request_keeps_to_its_original_length() -> (
    None
):
    model, _ = model_of("longrope")
    assert model.context == 64
    assert model.positions.relocatable
    check("longrope", [(*SYSTEM, PASSAGES[0], *QUESTION), (*QUESTION, PASSAGES[1], *SYSTEM)])
