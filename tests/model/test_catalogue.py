"""What the catalogue says of models: that the runtime knows them, and how large they are."""

from __future__ import annotations

import json

import pytest

from relquery.model.catalogue import BFLOAT16, ENCODERS, FOUR_BITS, TEXT, find_listed
from relquery.model.networks import encoder, families
from tests.real.conftest import needed

PARAMETERS = {  # as the hub counts them
    "HuggingFaceTB/SmolLM2-135M-Instruct": 134_515_008,
    "google/gemma-3-270m-it": 268_098_176,
    "HuggingFaceTB/SmolLM2-360M-Instruct": 361_821_120,
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "google/gemma-3-1b-it": 999_885_952,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1_711_376_384,
    "HuggingFaceTB/SmolLM3-3B": 3_075_098_624,
    "microsoft/Phi-4-mini-instruct": 3_836_021_760,
    "Qwen/Qwen3-4B-Instruct-2507": 4_022_468_096,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "Qwen/Qwen3-8B": 8_190_735_360,
}
FILES = {  # GB of published files in Q4_K_M
    "meta-llama/Llama-3.2-1B-Instruct": 0.81,
    "HuggingFaceTB/SmolLM3-3B": 1.92,
    "Qwen/Qwen3-4B-Instruct-2507": 2.50,
    "meta-llama/Llama-3.1-8B-Instruct": 4.92,
}
SHAPE = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "intermediate_size": "ffn",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head",
    "vocab_size": "vocabulary",
}


def test_the_runtime_knows_each_family() -> None:
    assert {each.family for each in TEXT} <= set(families.FAMILIES)
    assert {each.family for each in ENCODERS} <= set(encoder._ENCODERS)


def test_sizes_are_those_that_were_published() -> None:
    for name, parameters in PARAMETERS.items():
        model = find_listed(name)
        assert model is not None
        assert model.shape.parameters == pytest.approx(parameters, rel=1e-3), name
        assert model.shape.size(BFLOAT16) == 2 * model.shape.parameters
    for name, gigabytes in FILES.items():
        model = find_listed(name)
        assert model is not None
        assert model.shape.size(FOUR_BITS) / 1e9 == pytest.approx(gigabytes, rel=0.02), name


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("gemma3", "google/gemma-3-270m-it"),
        ("minilm", "sentence-transformers/all-MiniLM-L6-v2"),
    ],
)
def test_a_shape_is_that_of_the_model_s_configuration(folder: str, name: str) -> None:
    told = json.loads((needed(folder) / "config.json").read_text(encoding="utf-8"))
    model = find_listed(name)
    assert model is not None
    assert model.family == told["model_type"]
    known = {key: name for key, name in SHAPE.items() if told.get(key) is not None}
    assert {key: getattr(model.shape, known[key]) for key in known} == {
        key: told[key] for key in known
    }
