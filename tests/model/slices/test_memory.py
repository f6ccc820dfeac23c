"""Peaks of memory are counted: what is there at once, once, and no longer than it lives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from relquery.model.footprint import Footprint
from relquery.model.torch_runtime.load import TorchModel, load
from relquery.model.torch_runtime.memory import peak_bytes, usable_bytes

CPU = torch.device("cpu")
KIB = 1 << 10


def made(kib: int) -> torch.Tensor:
    return torch.zeros(kib * KIB, dtype=torch.uint8)


def views() -> None:
    whole = made(4)
    _parts = [whole[:KIB], whole.view(2, -1), whole.detach()]


def emptied() -> None:
    first = made(4)
    first.set_()  # type: ignore[call-overload]
    made(4)


PEAKS: list[tuple[Callable[[], object], int]] = [
    (lambda: None, 0),
    (lambda: [bool(made(4)[0]) for _ in range(3)], 4),  # one after another
    (views, 4),
    (lambda: made(4).add_(1), 4),
    (emptied, 4),
    (lambda: [made(4) for _ in range(3)], 12),
    (lambda: made(4) + made(4), 12),
]


def test_the_peak_is_of_what_is_there_at_once() -> None:
    for run, kib in PEAKS:
        assert peak_bytes(run, CPU) == kib * KIB, kib


def test_what_is_there_before_is_not_counted_and_may_live_on() -> None:
    before, after = made(4), []
    assert peak_bytes(lambda: after.append(before[:KIB] + 1), CPU) == KIB
    assert peak_bytes(after.clear, CPU) == 0
    assert usable_bytes(CPU) > 0


def test_an_error_is_passed_on_and_ends_the_counting() -> None:
    def fail() -> None:
        made(4)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        peak_bytes(fail, CPU)
    assert peak_bytes(lambda: made(2), CPU) == 2 * KIB


# ---- footprints

SPEC = "random:layers=6,hidden=32,heads=4,kv_heads=2,ffn=128"
KV_TOKEN = 2 * 16 * 4
"""Bytes of one token's keys and values in one layer."""


@pytest.fixture(scope="module")
def model() -> TorchModel:
    return load(SPEC, device="cpu")


@pytest.fixture(scope="module")
def footprint(model: TorchModel) -> Footprint:
    return model.footprint()


def test_each_weight_counts_once(model: TorchModel, footprint: Footprint) -> None:
    parameters = sum(each.nbytes for each in model.network.parameters())
    assert parameters <= footprint.weights <= 1.01 * parameters


def test_a_cached_token_has_keys_and_values_in_all_layers(footprint: Footprint) -> None:
    assert footprint.cached_token == 6 * KV_TOKEN


def test_what_is_kept_grows_with_all_layers_and_what_is_not_with_one(footprint: Footprint) -> None:
    kept, dropped = (
        (of(256, 256) - of(128, 128)) / 128 for of in (footprint.kept_prompt, footprint.one_prompt)
    )
    assert kept - dropped == pytest.approx(5 * KV_TOKEN, rel=0.01)


def test_each_technique_makes_a_long_prompt_smaller(footprint: Footprint) -> None:
    all_kept, whole = footprint.kept_prompt(128, 128), footprint.one_prompt(128, 128)
    assert all_kept > whole > footprint.one_prompt(128, 16)


def test_many_prompts_take_no_less_than_their_logits(
    model: TorchModel, footprint: Footprint
) -> None:
    logits = 64 * len(model.tokenizer) * 4
    assert footprint.many_prompts(128, 64, 128) > logits


def test_measuring_leaves_nothing_behind(model: TorchModel, footprint: Footprint) -> None:
    first = footprint.one_prompt(100, 16)
    assert footprint.one_prompt(100, 16) == first
    assert all(torch.isfinite(each).all() for each in model.network.parameters())
