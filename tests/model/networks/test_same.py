"""A network that would answer otherwise than on its own is refused, whatever it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf

from relquery.errors import ModelError
from relquery.model.attention.batch import PackedBatch
from relquery.model.forward import llama
from relquery.model.forward.run import Norm
from relquery.model.networks.load import prepare
from relquery.model.networks.random import RandomSpec, build_network, train_tokenizer
from relquery.model.networks.same import LONGEST, TEXTS, own_logits, rounding
from tests.model.oracle.architectures import ALL, LLAMA_LIKE, NoTokenizer, build

EIGHT = LLAMA_LIKE | {"head_dim": 8}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "attention in chunks": (
        lambda: tf.Llama4ForCausalLM(
            tf.Llama4TextConfig(**EIGHT, attention_chunk_size=64, intermediate_size_mlp=64)
        ),
        "limited to 64 tokens",
    ),
    "queries that grow with positions of their own": (
        lambda: tf.Llama4ForCausalLM(
            tf.Llama4TextConfig(
                **EIGHT,
                attention_chunk_size=256,
                intermediate_size_mlp=64,
                attn_temperature_tuning=True,
                floor_scale=16,
                attn_scale=0.5,
                no_rope_layers=[1, 0],
            )
        ),
        "counts by itself",
    ),
    "a window that attention is not told": (
        lambda: tf.PhimoeForCausalLM(
            tf.PhimoeConfig(**LLAMA_LIKE, sliding_window=100, num_local_experts=2)
        ),
        "limited to 100 tokens",
    ),
    "differences of two attentions": (
        lambda: tf.DiffLlamaForCausalLM(tf.DiffLlamaConfig(**LLAMA_LIKE)),
        "compute something else than the attention",
    ),
    "attention to chosen blocks": (
        lambda: tf.MiniMaxM3VLForCausalLM(
            tf.MiniMaxM3VLTextConfig(
                **LLAMA_LIKE,
                head_dim=16,
                num_local_experts=4,
                num_experts_per_tok=2,
                index_block_size=4,
                index_topk_blocks=1,
                index_n_heads=2,
                index_head_dim=16,
                layer_types=["full_attention", "minimax_m3_sparse"],
                mlp_layer_types=["sparse", "sparse"],
            )
        ),
        "its code does not run",
    ),
    "ALiBi that is rounded": (
        lambda: tf.FalconForCausalLM(
            tf.FalconConfig(
                vocab_size=97,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                alibi=True,
            )
        ),
        "ALiBi biases are rounded",
    ),
    "a mask that depends on the tokens": (
        lambda: tf.DogeForCausalLM(tf.DogeConfig(**LLAMA_LIKE)),
        "compute something else than the attention",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_engine_does_not_know_is_refused(name: str) -> None:
    make, why = REFUSED[name]
    torch.manual_seed(1)
    network = make().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.2)
    with pytest.raises(ModelError, match=why):
        prepare(network, NoTokenizer(), name)


def test_an_untrained_network_whose_masks_depend_on_the_tokens_is_refused() -> None:
    torch.manual_seed(1)
    network = tf.DogeForCausalLM(tf.DogeConfig(**LLAMA_LIKE, keep_window_size=16))
    with pytest.raises(ModelError, match="its masks depend on the tokens"):
        prepare(network, NoTokenizer(), "Doge")


def test_a_window_that_no_layer_has_limits_nothing() -> None:
    sizes: dict[str, Any] = {**LLAMA_LIKE, "layer_types": ["full_attention"] * 2}
    sizes["num_hidden_layers"] = 2
    experts = {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
    moe = tf.Qwen2MoeConfig(**sizes, **experts, num_experts=4, num_experts_per_tok=2)
    for network in (
        tf.Qwen2MoeForCausalLM(moe),
        tf.Gemma2ForCausalLM(tf.Gemma2Config(**sizes, sliding_window=20, head_dim=16)),
    ):
        assert prepare(network.eval(), NoTokenizer(), "whole").context == 256


def test_a_limit_beyond_the_context_limits_nothing() -> None:
    config = tf.Llama4TextConfig(**EIGHT, attention_chunk_size=256, intermediate_size_mlp=64)
    assert prepare(tf.Llama4ForCausalLM(config), NoTokenizer(), "whole").context == 256


@pytest.mark.parametrize(
    "name",
    [
        name if name in {"llama", "gemma2", "bloom"} else pytest.param(name, marks=pytest.mark.long)
        for name in ALL
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_is_no_reason_to_refuse(name: str, dtype: torch.dtype) -> None:
    network = build(name).to(dtype)
    assert prepare(network, NoTokenizer(), name).network is network


@pytest.mark.parametrize("kind", ["mistral", "gemma2", "gemma3"])
def test_windows_are_tried_although_the_prompt_is_shorter(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attend = PackedBatch.attend

    def wider(batch: PackedBatch, *args: Any, window: int | None = None, **kwargs: Any) -> Any:
        return attend(batch, *args, window=window and window + 1, **kwargs)

    network = build(kind)
    assert prepare(network, NoTokenizer(), kind).network.config.sliding_window == 16
    monkeypatch.setattr(PackedBatch, "attend", wider)
    with pytest.raises(ModelError, match="sliding windows hide other tokens"):
        prepare(build(kind), NoTokenizer(), kind)


def words(count: int) -> tf.PreTrainedTokenizerBase:
    """A tokenizer of so many tokens, most of them of single characters."""
    return train_tokenizer(("the capital of France is Paris",) * 3, count)


def test_the_probes_are_text_where_the_tokenizer_has_some() -> None:
    network = build_network(RandomSpec(layers=1, hidden=32), words(300), torch.float32)
    given = own_logits(network, words(300))
    assert [words(300).decode(probe.ids) for probe in given] == [
        words(300).decode(words(300)(text)["input_ids"][:LONGEST]) for text in TEXTS
    ]
    assert all(0 < probe.spread < 1e-4 for probe in given)
    assert len(own_logits(network)) == 1


def test_what_differs_by_more_than_rounding_runs_in_the_networks_own_pass_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = words(300)
    network = build_network(RandomSpec(layers=1, hidden=32), tokenizer, torch.float32)
    assert prepare(network, tokenizer, "mine").runs_in == "relquery's forward pass"
    as_it_is = llama._norm

    def bent(norm: Any) -> Norm:
        weight, epsilon = as_it_is(norm).weight, as_it_is(norm).epsilon
        return Norm(weight * torch.linspace(1, 1.1, len(weight)), epsilon)

    monkeypatch.setattr(llama, "_norm", bent)
    network = build_network(RandomSpec(layers=1, hidden=32), tokenizer, torch.float32)
    with pytest.warns(UserWarning, match=r"off by 0\.0.*transformers' forward pass"):
        model = prepare(network, tokenizer, "mine")
    assert model.runs_in.startswith("transformers' forward pass: relquery's own")


def test_an_unknown_network_says_why_it_runs_in_its_own_pass() -> None:
    assert "GPT2LMHeadModel" in prepare(build("gpt2"), NoTokenizer(), "gpt2").runs_in


def test_rounding_is_compared_with_that_of_two_stock_implementations() -> None:
    network = build_network(RandomSpec(layers=1, hidden=32), words(300), torch.bfloat16)
    probe = own_logits(network, words(300))[0]
    assert rounding(network, [probe._replace(spread=0.0)]) == 0.05
    assert rounding(network, [probe._replace(spread=0.04)]) == pytest.approx(0.12)
    assert rounding(network, [probe._replace(spread=5.0)]) == 0.3  # something else is computed
