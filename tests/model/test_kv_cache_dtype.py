"""Keys and values in 8 bits, against the stock network with a cache whose content is rounded."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

import relquery as rq
from relquery.arrays import TokenIds
from relquery.engine.requests.request import Request
from relquery.errors import ConfigError, ModelError
from relquery.markup.schema import Schema
from relquery.model.load import load
from relquery.model.native_model import NativeModel
from relquery.model.networks.random import byte_tokenizer
from relquery.model.store import LayerStates, StateFiles
from tests.model import test_spans as spans
from tests.model.oracle.architectures import (
    LLAMA_LIKE,
    engine_of,
    finished,
    larger,
    made,
    native,
    prompts_with_shared_prefixes,
)
from tests.model.oracle.dense import dense_logits
from tests.model.oracle.recorded import RecordedNative

GROUP, TOKENS = 32, 8
BOUND = {"float32": 1e-3, "bfloat16": 0.03}
"""How far logits may be from the oracle's, as a share of the largest: sums in another order round a
few numbers to the next code."""
WIDE = {"head_dim": 48, "hidden_size": 64}
"""Heads of a whole group of codes and half of one."""
MADE = {
    "llama": made("Llama", LLAMA_LIKE, WIDE),
    "qwen3": made("Qwen3", LLAMA_LIKE, WIDE),
    "mistral": made("Mistral", LLAMA_LIKE, WIDE, sliding_window=16),
    "narrow": made("Llama", LLAMA_LIKE),
}


def rounded(numbers: Tensor) -> Tensor:
    """By the largest of each 32 numbers of a head, to 127 steps up and down."""
    given = numbers.numpy().astype(np.float64)
    found = np.empty_like(given)
    for first in range(0, given.shape[-1], GROUP):
        part = given[..., first : first + GROUP]
        step = np.abs(part).max(-1, keepdims=True) / 127
        found[..., first : first + GROUP] = np.rint(part / np.where(step, step, 1)) * step
    return torch.from_numpy(found.astype(np.float32))


class RoundedCache(DynamicCache):
    """A cache of transformers that rounds what it is given before anything reads it."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **options: Any
    ) -> Any:
        keys, values = rounded(key_states), rounded(value_states)
        return super().update(keys, values, layer_idx, *args, **options)


@torch.inference_mode()
def oracle_logits(stock: Any, tokens: TokenIds, *, rounds: bool = True) -> Tensor:
    """(tokens, vocabulary) logits of the stock network."""
    kept = (RoundedCache if rounds else DynamicCache)(config=stock.config)
    ids = torch.from_numpy(tokens).long()[None]
    logits: Tensor = stock(ids, cache=kept).logits[0]
    return logits


@cache
def model_of(name: str, dtype: str = "float32") -> tuple[NativeModel, Any]:
    """A network with keys and values in 8 bits, and the stock one."""
    network = larger(MADE[name])
    network.generation_config.eos_token_id = None
    return native(network, dtype=dtype).with_cache_in_8_bits(), network.eval()


def distance(found: Tensor, wanted: Tensor) -> float:
    """The largest, as a share of the largest logit."""
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("dtype", BOUND)
def test_logits_are_those_of_rounded_keys_and_values(name: str, dtype: str) -> None:
    model, stock = model_of(name, dtype)
    for limits in ({}, {"max_num_batched_tokens": 7, "max_num_seqs": 3}):
        engine = engine_of(model, RecordedNative, **limits)
        prompts = prompts_with_shared_prefixes(8)
        requests = [Request(i, each, TOKENS) for i, each in enumerate(prompts)]
        list(finished(engine, requests))
        apart = []
        for request, prompt in zip(requests, prompts, strict=True):
            tokens = np.concatenate((prompt, request.output)).astype(np.int32)
            found = torch.stack(engine._executor.logits[request.id])  # type: ignore[attr-defined]
            read = slice(len(prompt) - 1, len(prompt) - 1 + len(found))
            assert distance(found, oracle_logits(stock, tokens)[read]) <= BOUND[dtype]
            apart.append(distance(found, oracle_logits(stock, tokens, rounds=False)[read]))
        assert max(apart) > 2e-3, "nothing was rounded"


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_spans_at_other_positions_are_near_the_dense_reference(name: str) -> None:
    model, stock = model_of(name)
    passages = [tuple(each.tolist()) for each in prompts_with_shared_prefixes(6, seed=1)]
    specs = [(passages[i], passages[5 - i], passages[i], 6, 7) for i in range(6)]
    engine = engine_of(model, RecordedNative)
    requests = [Request(i, spans.engine_chain(spec), 1) for i, spec in enumerate(specs)]
    list(finished(engine, requests))
    for request, spec in zip(requests, specs, strict=True):
        (found,) = engine._executor.logits[request.id]  # type: ignore[attr-defined]
        assert distance(found, dense_logits(stock, spans.dense_chain(spec))[-1]) <= 0.03


def test_a_storm_gives_each_prompt_the_answer_that_it_has_alone() -> None:
    model, _ = model_of("llama")
    rng = np.random.default_rng(0)
    prompts = prompts_with_shared_prefixes(25, seed=2)

    def asked(number: int, at: int) -> Request:
        """Some answers are one pass."""
        return Request(number, prompts[at], 1 if at % 3 == 0 else TOKENS)

    alone = {}
    for at in range(len(prompts)):
        (request,) = finished(engine_of(model), [asked(0, at)])
        alone[at] = request.output
    drawn = rng.integers(0, len(prompts), 200)
    limits = {"cache_tokens": 256, "max_input": 80, "max_num_seqs": 7}
    engine = engine_of(model, max_num_batched_tokens=64, **limits)
    requests = [asked(number, int(at)) for number, at in enumerate(drawn)]
    list(finished(engine, requests))
    assert [each.output for each in requests] == [alone[int(at)] for at in drawn]
    assert sum(each.cached or 0 for each in requests) > 1_000
    assert len({tuple(each) for each in alone.values()}) > 10


def test_few_greedy_tokens_differ_from_those_of_states_as_computed() -> None:
    model, stock = model_of("llama")
    plain = native(stock)
    prompts = prompts_with_shared_prefixes(40, seed=3)
    outputs = []
    for each in (model, plain):
        requests = [Request(i, prompt, 1) for i, prompt in enumerate(prompts)]
        list(finished(engine_of(each), requests))
        outputs.append([request.output for request in requests])
    same = sum(one == other for one, other in zip(*outputs, strict=True))
    assert same >= 36, f"nine tenths of the first tokens, and not {same}"


def test_states_on_disk_are_read_in_the_format_they_were_written_in(tmp_path: Path) -> None:
    schema = Schema.parse(
        f"<schema name='s'><module name='m'>{'So it was said. ' * 9}</module></schema>"
    )

    def asked(**options: Any) -> Any:
        with rq.connect("random:layers=2,hidden=64", store=tmp_path, **options) as con:
            con.register(schema)
            return con.prompt("<prompt schema='s'><m/>By whom?</prompt>", max_tokens=6)

    few: dict[str, Any] = {"kv_cache_dtype": "int8"}
    first, again, whole = asked(**few), asked(**few), asked()
    assert first.text == again.text
    cached = [each.answer.cached_tokens for each in (first, again, whole)]
    assert cached[1] > 100
    assert cached[::2] == [0, 0]
    states = LayerStates(*np.zeros((2, 1, 4, 36), dtype=np.uint8))
    StateFiles(tmp_path / "one", 1 << 20, "U8").write(b"key", [states])
    assert StateFiles(tmp_path / "one", 1 << 20, "F32").read(b"key") is None


def test_a_token_takes_less_memory_and_the_model_has_another_name() -> None:
    spec = "random:layers=2,hidden=256,heads=4,kv_heads=2"
    few, whole = (load(spec, device="cpu", kv_cache_dtype=each) for each in ("int8", None))
    sizes = [each.footprint().cached_token for each in (few, whole)]
    assert sizes == [2 * 2 * 2 * (64 + 2 * 4), 2 * 2 * 2 * 64 * 4]
    assert few.version != whole.version
    assert few.fingerprint() != whole.fingerprint()


def test_what_cannot_be_in_8_bits_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="kv_cache_dtype 'int4'"):
        load("random:layers=1,hidden=64", device="cpu", kv_cache_dtype="int4")
    with pytest.raises(ModelError, match="kv_cache_dtype rounds numbers"):
        load("random:layers=1,hidden=64", device="cuda", kv_cache_dtype="int8")
    larger(made("Llama", LLAMA_LIKE, {"intermediate_size": 33})).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"down_proj has an odd width.*Leave kv_cache_dtype out"):
        load(
            str(tmp_path),
            device="cpu",
            dtype="bfloat16",
            kv_cache_dtype="int8",
            tokenizer=byte_tokenizer().backend,
        )
    with pytest.raises(ConfigError, match="does not take kv_cache_dtype"):
        rq.Engine("simulated:step=0.1", kv_cache_dtype="int8")
