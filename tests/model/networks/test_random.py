"""Networks with random weights, and the tokenizers that go with them."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from relquery.errors import ModelError
from relquery.model.networks.random import (
    END,
    RandomSpec,
    build_network,
    byte_tokenizer,
    train_tokenizer,
)

BYTES = byte_tokenizer()
SMALL = RandomSpec(layers=1, hidden=32, heads=4, kv_heads=2, ffn=48, context=128)


def test_a_spec_is_read_with_defaults_for_what_it_leaves_out_or_its_fault_is_named() -> None:
    assert RandomSpec.parse("random:") == RandomSpec()
    some = RandomSpec(layers=2, hidden=64, kv_heads=1)
    assert RandomSpec.parse("random:layers=2,hidden=64,kv_heads=1") == some
    for text in ("layers=x", "layers=-1", "layers", "layers=", "layers=1.5"):
        with pytest.raises(ModelError, match=f"'{text}' in 'random:hidden=64,{text}'"):
            RandomSpec.parse(f"random:hidden=64,{text}")
    with pytest.raises(ModelError, match=r"Settings: layers, .* Did you mean 'hidden'\?"):
        RandomSpec.parse("random:hiden=64")


def test_a_shape_that_no_network_can_have_is_refused() -> None:
    for spec in (
        RandomSpec(layers=1, hidden=30, heads=4),
        RandomSpec(layers=1, hidden=28, heads=4),
        RandomSpec(layers=1, hidden=32, heads=4, kv_heads=3),
        RandomSpec(layers=0),
        RandomSpec(hidden=0),
        RandomSpec(context=0),
    ):
        with pytest.raises(ModelError, match="No network can have this shape"):
            build_network(spec, BYTES, torch.float32)


def test_the_network_has_the_shape_that_the_spec_says_or_its_hidden_size_lets_follow() -> None:
    network = build_network(SMALL, BYTES, torch.bfloat16)
    config = network.config
    assert network.dtype == torch.bfloat16
    assert (config.num_hidden_layers, config.hidden_size, config.intermediate_size) == (1, 32, 48)
    assert (config.num_attention_heads, config.num_key_value_heads) == (4, 2)
    assert config.max_position_embeddings == 128
    assert config.vocab_size == len(BYTES)
    assert network.generation_config.eos_token_id == BYTES.eos_token_id
    config = build_network(RandomSpec(layers=1, hidden=128), BYTES, torch.float32).config
    assert (config.num_attention_heads, config.num_key_value_heads) == (2, 2)
    assert config.intermediate_size == 512


def weights(spec: RandomSpec) -> torch.Tensor:
    network = build_network(spec, BYTES, torch.float32)
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def test_the_seed_alone_decides_the_weights_and_the_global_random_state_is_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first = weights(SMALL)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first, weights(SMALL))
    assert not torch.equal(first, weights(replace(SMALL, seed=1)))


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """As data, in which the name of a special token is text like any other."""
    return cast(list[int], tokenizer.encode(text, split_special_tokens=True))


@given(st.text())
@example("a<|end|>b")
def test_the_byte_tokenizer_loses_nothing_and_has_one_token_per_byte(text: str) -> None:
    ids = encode(BYTES, text)
    assert len(ids) == len(text.encode())
    assert BYTES.eos_token_id not in ids
    assert BYTES.decode(ids) == text
    assert BYTES.encode(END) == [BYTES.eos_token_id]


def test_odd_text_comes_back_as_it_was() -> None:
    trained = train_tokenizer(["don 't stop , now .", "a  b"], vocabulary=300)
    for text in ("a  b", " , .", 'q"{}', "nul\0", "é😀", "don 't", "\n\t "):
        for tokenizer in (BYTES, trained):
            assert tokenizer.decode(encode(tokenizer, text)) == text


def test_a_trained_tokenizer_has_at_most_its_vocabulary_and_shortens_its_texts() -> None:
    texts = [f"the movie number {n} is a good movie" for n in range(50)]
    tokenizer = train_tokenizer(texts, vocabulary=320)
    assert len(tokenizer) <= 320
    assert len(tokenizer.encode(texts[0])) < len(texts[0]) / 3
