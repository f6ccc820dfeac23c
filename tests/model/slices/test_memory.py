"""Peaks of memory are counted: what is there at once, once, and no longer than it lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from relquery.model.footprint import Footprint
from relquery.model.forward.linear import PackedLinear
from relquery.model.forward.stock import StockForward
from relquery.model.networks.load import LoadedModel, load
from relquery.model.slices.memory import peak_bytes, usable_bytes
from relquery.model.torch_executor import probe_release
from tests.model.slices.test_hybrid import loaded

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
def model() -> LoadedModel:
    return load(SPEC, device="cpu")


@pytest.fixture(scope="module")
def footprint(model: LoadedModel) -> Footprint:
    return Footprint(model)


def test_each_weight_counts_once_and_a_packed_head_too(
    model: LoadedModel, footprint: Footprint
) -> None:
    network: Any = model.network
    parameters = sum(each.nbytes for each in network.parameters())
    linear: set[Any] = {each.packed for each in network.modules() if isinstance(each, PackedLinear)}
    assert len(linear) == 4 * 6 + 1
    parameters += sum(each.dense().nbytes for each in linear)
    assert parameters <= footprint.weights <= 1.01 * parameters


def test_a_cached_token_has_keys_and_values_in_all_layers(footprint: Footprint) -> None:
    assert footprint.cached_token == 6 * KV_TOKEN


def test_what_is_kept_grows_with_all_layers_and_what_is_not_with_one(footprint: Footprint) -> None:
    kept, dropped = (
        (of(256, 256) - of(128, 128)) / 128 for of in (footprint.kept_prompt, footprint.one_prompt)
    )
    # The peak is before the end of the last layer, which only computes the rows that are drawn.
    assert kept - dropped == pytest.approx(4 * KV_TOKEN, rel=0.01)


def test_each_technique_makes_a_long_prompt_smaller(model: LoadedModel) -> None:
    stock = replace(model, forward=StockForward(model.network))
    keeping = Footprint(stock)
    footprint = Footprint(replace(stock, release=probe_release(model.network)))
    all_kept, whole = footprint.kept_prompt(128, 128), footprint.one_prompt(128, 128)
    in_slices, released = keeping.one_prompt(128, 16), footprint.one_prompt(128, 16)
    assert all_kept > whole > in_slices > released
    assert all_kept > footprint.kept_prompt(128, 16) > released


def test_the_first_layers_tell_what_all_take(footprint: Footprint) -> None:
    for each, lengths in ((footprint, [65, 200]), (Footprint(loaded("bloom")), [100])):
        for tokens in lengths:
            whole = each.one_prompt(tokens, 32, all_layers=True)
            assert each.one_prompt(tokens, 32) == pytest.approx(whole, rel=0.01)


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "bloom", "gemma3", "gpt2"])
def test_the_first_layers_tell_it_of_other_networks_too(name: str) -> None:
    footprint = Footprint(loaded(name))
    rehearsed = footprint.one_prompt(200, 16)
    assert rehearsed == pytest.approx(footprint.one_prompt(200, 16, all_layers=True), rel=0.01)


def test_many_prompts_take_no_less_than_their_logits(
    model: LoadedModel, footprint: Footprint
) -> None:
    logits = 64 * len(model.tokenizer) * 4
    few, many = (footprint.many_prompts(128, prompts, 128) for prompts in (1, 64))
    assert many > logits
    assert many >= few


def test_measuring_leaves_nothing_behind(model: LoadedModel, footprint: Footprint) -> None:
    first = footprint.one_prompt(100, 16)
    assert footprint.one_prompt(100, 16) == first
    assert all(torch.isfinite(each).all() for each in model.network.parameters())
