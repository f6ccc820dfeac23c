"""The executor that computes: chunks in, one packed forward pass, drawn tokens out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch

from relquery.engine.executor import Chunk, Segment
from relquery.engine.request.request import Draw
from relquery.model.forward.stock import Forward
from relquery.model.networks.load import prepare
from relquery.model.torch_executor import TorchExecutor
from tests.model.oracle.architectures import NoTokenizer, build

TOKENS = np.random.default_rng(0).integers(3, 97, 30).astype(np.int32)


@pytest.fixture(scope="module")
def forward() -> Forward:
    return prepare(build("llama"), cast(Any, NoTokenizer()), "llama").forward


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    """(30, vocabulary): those of the stock network after each of TOKENS."""
    with torch.inference_mode():
        return cast(torch.Tensor, build("llama")(torch.from_numpy(TOKENS).long()[None]).logits[0])


def chunk(start: int, stop: int, slots: np.ndarray[Any, Any], draw: Draw | None = None) -> Chunk:
    """TOKENS from start to stop, of a request whose token i is in slots[i]."""
    context = (Segment(slots[:start]),) if start else ()
    return Chunk(0, TOKENS[start:stop], start, context, slots[start:stop], draw)


def scattered(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).permutation(60)[:30]


def best(logits: torch.Tensor, place: int) -> int:
    return int(logits[place].argmax())


def test_a_whole_prompt_gives_the_token_after_it(forward: Forward, logits: torch.Tensor) -> None:
    executor = TorchExecutor(forward, 60)
    assert executor.execute([chunk(0, 30, scattered(1), Draw())]) == [best(logits, 29)]


@pytest.mark.parametrize("cuts", [(10, 20), (1, 2, 3, 29), tuple(range(1, 30)), (29,)])
def test_a_prompt_in_chunks_gives_the_same_token(
    forward: Forward, logits: torch.Tensor, cuts: tuple[int, ...]
) -> None:
    executor, slots = TorchExecutor(forward, 60), scattered(2)
    places = [0, *cuts, 30]
    drawn = [
        executor.execute([chunk(start, stop, slots, Draw() if stop == 30 else None)])
        for start, stop in pairwise(places)
    ]
    assert drawn == [[None]] * len(cuts) + [[best(logits, 29)]]


def test_each_chunk_that_wants_a_token_gets_its_own(forward: Forward, logits: torch.Tensor) -> None:
    executor = TorchExecutor(forward, 200)
    slots = np.arange(200).reshape(4, 50)
    chunks = [
        chunk(0, 7, slots[0], Draw()),
        chunk(0, 12, slots[1]),
        chunk(0, 1, slots[2], Draw()),
        chunk(0, 25, slots[3], Draw()),
    ]
    expected = [best(logits, 6), None, best(logits, 0), best(logits, 24)]
    assert executor.execute(chunks) == expected


@pytest.mark.parametrize("share", [True, False])
def test_a_chunk_may_read_what_another_of_the_same_step_writes(
    forward: Forward, logits: torch.Tensor, share: bool
) -> None:
    executor = TorchExecutor(forward, 100, share)
    slots = np.arange(100)
    chunks = [  # one reader before the writer, one after it
        chunk(20, 21, np.concatenate((slots[:20], slots[60:70])), Draw()),
        chunk(0, 20, slots[:30], Draw()),
        chunk(20, 30, slots[:30], Draw()),
    ]
    assert executor.execute(chunks) == [best(logits, 20), best(logits, 19), best(logits, 29)]


def test_the_allowed_tokens_of_a_draw_are_kept_to(forward: Forward, logits: torch.Tensor) -> None:
    allowed = tuple(sorted(logits[29].argsort()[:3].tolist()))
    executor = TorchExecutor(forward, 60)
    drawn = executor.execute([chunk(0, 30, scattered(3), Draw(allowed=allowed))])
    assert drawn == [max(allowed, key=lambda token: float(logits[29, token]))]


def test_slots_are_used_as_given_and_may_be_written_again(
    forward: Forward, logits: torch.Tensor
) -> None:
    executor = TorchExecutor(forward, 30)
    for start in (0, 5, 0):  # other content in the same slots, each time whole
        slots = np.roll(np.arange(30), start)
        executor.execute([chunk(0, 20, slots)])
        assert executor.execute([chunk(20, 30, slots, Draw())]) == [best(logits, 29)]
