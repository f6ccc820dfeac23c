"""The native runtime, against `transformers`: greedy output, and spans under a dense mask."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from relquery import Engine
from relquery.arrays import TokenIds
from relquery.engine.requests.request import Request
from relquery.errors import ModelError
from relquery.model.native_model import open_folder
from relquery.model.networks.families import FAMILIES
from tests.model import test_spans as spans
from tests.model.oracle.architectures import (
    NO_TOKENIZER,
    build,
    engine_of,
    finished,
    generated,
    model_of,
    prompts_with_shared_prefixes,
)
from tests.model.test_generate import SETTINGS, TOKENS
from tests.model.test_spans import Spec, prompts, schemas

NAMES = [
    "gemma2", "gemma3", "granite", "linear", "llama", "llama3", "longrope", "mistral", "phi3",
    "phi3_partial", "qwen2", "qwen3", "qwen3_moe", "qwen3_moe of whole panels",
    "qwen3_moe with shares of all", "smollm3", "yarn",
]  # fmt: skip


class Case(NamedTuple):
    """A network in the native runtime, prompts, and what the stock network generated for them."""

    model: Any
    prompts: list[TokenIds]
    expected: list[list[int]]


@cache
def case_of(name: str) -> Case:
    model, network = model_of(name, "native")
    asked = [
        each for each in prompts_with_shared_prefixes(12) if len(each) + TOKENS <= model.context
    ]
    return Case(model, asked, [generated(network, prompt, TOKENS) for prompt in asked])


def answered(case: Case, **limits: Any) -> list[list[int]]:
    requests = [Request(i, prompt, TOKENS) for i, prompt in enumerate(case.prompts)]
    outputs = {each.id: each.output for each in finished(engine_of(case.model, **limits), requests)}
    return [outputs[each.id] for each in requests]


@pytest.mark.parametrize("name", NAMES)
def test_greedy_output_is_that_of_transformers(name: str) -> None:
    case = case_of(name)
    assert answered(case) == case.expected


@pytest.mark.parametrize("setting", SETTINGS)
def test_greedy_output_is_that_of_transformers_in_every_setting(setting: str) -> None:
    case = case_of("gemma3")
    assert answered(case, **SETTINGS[setting]) == case.expected


def check(name: str, specs: list[Spec], **limits: Any) -> None:
    """Every token is drawn from the logits that the dense reference has there."""
    spans.check(name, specs, runtime="native", **limits)


@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3_partial"])
def test_spans_at_other_positions_equal_the_dense_reference(name: str) -> None:
    @given(prompts())
    def holds(specs: list[Spec]) -> None:
        check(name, specs)

    holds()


@pytest.mark.parametrize("name", ["llama", "gemma3", "mistral"])
def test_modules_of_a_schema_equal_the_dense_reference(name: str) -> None:
    @given(schemas())
    def holds(specs: list[Spec]) -> None:
        check(name, specs)
        check(name, specs, max_num_batched_tokens=16, slice_tokens=5, max_num_seqs=4)

    holds()


# Spans that are used twice, and a nested one that sees both: its shifts are others than those of
# what follows it.
TWICE: Spec = (
    (3, 3, 5, 4, 3), (3, 3, 5, 4, 3), (86, 5, 13, 3),
    (80, (3, 3, 5, 4, 3), (86, 5, 13, 3), 3), 6,
)  # fmt: skip


def test_the_last_layer_turns_spans_as_its_own_tokens_see_them() -> None:
    check("llama", [TWICE])


@pytest.mark.parametrize("slice_tokens", [1, 7, 59])
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3_moe"])
def test_slices_of_a_prompt_that_is_not_kept_change_no_logit(name: str, slice_tokens: int) -> None:
    prompt = tuple(range(3, 63))
    check(name, [prompt], answer=1, cache_tokens=16, max_input=64, slice_tokens=slice_tokens)


def test_a_step_of_more_labels_than_logits_at_once_has_the_scores_of_each_alone() -> None:
    labels = [f"{first}{second}" for first in "abcd" for second in "efgh"]
    prompts = [f"{number}th of {number % 3}" for number in range(90)]
    with Engine("random:layers=2,hidden=64", device="cpu", prefix_caching=False) as engine:
        together = engine.score(prompts, labels=labels)
        for number in range(0, len(prompts), 17):
            (alone,) = engine.score([prompts[number]], labels=labels)
            assert together[number].log_probabilities == pytest.approx(
                alone.log_probabilities, abs=1e-5
            )


def test_experts_whose_matrices_are_one_in_the_file_are_the_same(tmp_path: Path) -> None:
    case, network = case_of("qwen3_moe"), build("qwen3_moe")
    network.save_pretrained(tmp_path)
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    joined = Case(open_folder(tmp_path, "", "float32", NO_TOKENIZER), *case[1:])
    assert "model.layers.0.mlp.experts.gate_up_proj" in joined.model._weights
    assert answered(joined) == case.expected


def test_weights_that_are_written_into_while_they_are_open_are_an_error(tmp_path: Path) -> None:
    case, network = case_of("llama"), build("llama")
    network.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    opened = Case(open_folder(tmp_path, "", "float32", NO_TOKENIZER), *case[1:])
    (tmp_path / "other").write_bytes(whole[:-4] + b"0000")
    (tmp_path / "other").replace(file)  # the one that is open has no name any more
    assert answered(opened) == case.expected
    for written in (whole, whole[:9_000]):
        model = open_folder(tmp_path, "", "float32", NO_TOKENIZER)
        file.write_bytes(written)
        with pytest.raises(ModelError, match="changed on disk since they were opened"):
            answered(Case(model, *case[1:]))
        with pytest.raises(ModelError, match="changed on disk since they were opened"):
            model.fingerprint()


def _changed(**keys: Any) -> Callable[[dict[str, Any]], object]:
    """Keys with other values, or without one, in a configuration."""

    def change(config: dict[str, Any]) -> None:
        for key, value in keys.items():
            config.pop(key, None)
            if value is not ...:
                config[key] = value

    return change


def _partial(config: dict[str, Any]) -> None:
    config["rope_parameters"]["partial_rotary_factor"] = 0.5


CHANGED: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("gemma2", _changed(hidden_activation=...)),
    ("gemma3", _changed(hidden_activation=..., hidden_act="silu")),
    ("gemma2", _changed(attn_logit_softcapping=..., final_logit_softcapping=...)),
    ("gemma2", _changed(attn_logit_softcapping=None, final_logit_softcapping=None)),
    ("gemma3", _changed(attn_logit_softcapping=3.0)),
    ("smollm3", _changed(rope_parameters=..., max_window_layers=28)),
    ("llama", _partial),
    ("granite", _partial),
    ("llama", _changed(layer_types=["full_attention"] * 2, rope_scaling=None, is_decoder=False)),
]
"""Networks, and what is changed in their configuration."""


@pytest.mark.parametrize(("name", "change"), CHANGED)
def test_keys_of_a_configuration_mean_what_they_mean_to_transformers(
    name: str, change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    build(name).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))
    stock: Any = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    stock.eval()
    stock.generation_config.eos_token_id = None
    asked = case_of(name).prompts[:4]
    expected = [generated(stock, prompt, TOKENS) for prompt in asked]
    model = open_folder(tmp_path, "", "float32", NO_TOKENIZER)
    assert answered(Case(model, asked, expected)) == expected


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("granite", {"logits_scaling": 0}, "logits_scaling is 0"),
    ("llama", {"layer_types": ["sliding_attention"] * 2}, "layer_types"),
    ("gemma3", {"rope_parameters": {"rope_theta": 50.0}}, "rope_parameters does not say"),
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "say different things"),
    ("longrope", {"original_max_position_embeddings": 16}, "two different numbers"),
]
"""Networks, keys with other values, and why they are refused."""


@pytest.mark.parametrize(("name", "keys", "why"), REFUSED)
def test_keys_that_say_two_things_are_refused(
    name: str, keys: dict[str, Any], why: str, tmp_path: Path
) -> None:
    build(name).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))
    with pytest.raises(ModelError, match=why):
        open_folder(tmp_path, "", "float32", NO_TOKENIZER)


def test_every_family_has_a_network_here() -> None:
    kinds = {build(name).config.model_type for name in NAMES}
    assert kinds == {*FAMILIES}
