"""Adapters beside a model, against networks that they are merged into."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from relquery.arrays import TokenIds
from relquery.engine.requests.labels import LabelTrie
from relquery.engine.requests.pieces import PLAIN, Chain
from relquery.engine.requests.request import Request, Rules
from relquery.errors import ModelError
from relquery.model.formats.adapter import read_lora
from relquery.model.load import load
from relquery.model.native_model import NativeModel, open_folder, open_gguf
from tests.model.oracle.adapters import ALL, JOINED, merge, shapes_of, write_adapter
from tests.model.oracle.architectures import (
    NO_TOKENIZER,
    build,
    engine_of,
    finished,
    generated,
    native,
    prompts_with_shared_prefixes,
)
from tests.model.oracle.written_gguf import write_gguf

TOKENS = 8
PROMPTS = prompts_with_shared_prefixes(12)
PATTERNS: dict[str, Any] = {
    "rank_pattern": {"down_proj": 7, r".*\.0\.self_attn\.o_proj": 2},
    "alpha_pattern": {"layers.1.self_attn.o_proj": 3, "down_proj": 5.5},
    "use_rslora": True,
}


class Asked(NamedTuple):
    """What is asked, and the name of the adapter that answers; "" for none."""

    prompt: TokenIds | Chain
    adapter: str


def opened(network: Any, adapters: Sequence[Path], dtype: str = "float32") -> NativeModel:
    folder = Path(mkdtemp())
    network.save_pretrained(folder)
    loras = [read_lora(each, each.name) for each in adapters]
    return open_folder(folder, "tiny", dtype, NO_TOKENIZER, loras=loras)


def requests_of(model: NativeModel, asked: Sequence[Asked], **more: Any) -> list[Request]:
    return [
        Request(number, prompt, TOKENS, adapter=model.adapters.get(name, PLAIN), **more)
        for number, (prompt, name) in enumerate(asked)
    ]


def answered(model: NativeModel, asked: Sequence[Asked], **limits: Any) -> list[list[int]]:
    requests = requests_of(model, asked)
    list(finished(engine_of(model, **limits), requests))
    return [each.output for each in requests]


@cache
def adapted(name: str = "llama", dtype: str = "float32") -> NativeModel:
    """A network with adapters of all matrices, of one and of two, and of patterns."""
    folder, shapes = Path(mkdtemp()), shapes_of(build(name))
    own = JOINED if name == "phi3" else ALL
    whole = write_adapter(folder / "whole", shapes, own, **PATTERNS)
    some = write_adapter(folder / "some", shapes, own[1:3], seed=2, r=40, by=0.2)
    small = write_adapter(folder / "small", shapes, own[-2:-1], seed=3, r=1, lora_alpha=1, by=1)
    return opened(build(name), [whole, some, small], dtype)


@pytest.mark.parametrize("name", ["gemma3", "llama", "phi3", "qwen2", "qwen3"])
def test_one_batch_has_the_answers_of_each_merged_network(name: str, tmp_path: Path) -> None:
    own, shapes = JOINED if name == "phi3" else ALL, shapes_of(build(name))
    folders = [
        write_adapter(tmp_path / "whole", shapes, own, **PATTERNS),
        write_adapter(tmp_path / "some", shapes, own[1:3], seed=2, r=40),
    ]
    networks = {each.name: merge(build(name), each) for each in folders} | {"": build(name)}
    names = [[*networks][at % 3] for at in range(len(PROMPTS))]
    asked = [Asked(*each) for each in zip(PROMPTS, names, strict=True)]
    expected = [
        generated(networks[name], prompt, TOKENS)
        for prompt, name in zip(PROMPTS, names, strict=True)
    ]
    model = opened(build(name), folders)
    assert answered(model, asked) == expected
    assert answered(model, asked, max_num_batched_tokens=33, slice_tokens=16) == expected
    plain = answered(model, [Asked(prompt, "") for prompt in PROMPTS])
    assert plain == [generated(networks[""], prompt, TOKENS) for prompt in PROMPTS]
    assert sum(one != other for one, other in zip(plain, expected, strict=True)) >= 5


def test_weighed_labels_are_those_of_the_merged_network(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "whole", shapes_of(build("llama")))
    labels = ((5, 6, 7), (5, 9), (11,))

    def scores(model: NativeModel, adapter: str) -> list[Any]:
        rules, trie = Rules(labels=labels), LabelTrie(labels, frozenset())
        asked = [Asked(prompt, adapter) for prompt in PROMPTS]
        requests = requests_of(model, asked, rules=rules, scored=True, trie=trie)
        list(finished(engine_of(model), requests))
        return [each.scores for each in requests]

    found = scores(opened(build("llama"), [folder]), "whole")
    merged = native(merge(build("llama"), folder))
    assert np.allclose(found, scores(merged, ""), atol=1e-4)
    assert not np.allclose(found, scores(native(build("llama")), ""), atol=0.1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_network_with_adapters_computes_as_one_without_them(dtype: str) -> None:
    asked = [Asked(prompt, "") for prompt in PROMPTS]
    plain = native(build("llama"), dtype=dtype)
    assert answered(adapted(dtype=dtype), asked) == answered(plain, asked)


def test_bfloat16_gives_nearly_what_float32_gives() -> None:
    asked = [Asked(prompt, "whole") for prompt in PROMPTS]
    one, other = answered(adapted(), asked), answered(adapted(dtype="bfloat16"), asked)
    first = [a[0] == b[0] for a, b in zip(one, other, strict=True)]
    assert sum(first) >= 10, (one, other)


def storm() -> list[Asked]:
    """200 prompts that begin alike, a third of them with one of a few spans that all of them share,
    for any of three adapters and none."""
    rng = Random(0)
    spans = [Chain((each[:20],), names=[]) for each in PROMPTS[:3]]

    def prompt() -> TokenIds | Chain:
        own = rng.choice(PROMPTS)
        return Chain((own[:9], rng.choice(spans), own)) if rng.random() < 0.3 else own

    return [Asked(prompt(), rng.choice(["", *adapted().adapters])) for _ in range(200)]


@cache
def answered_alone() -> list[list[int]]:
    """What each of the storm gets by itself, from its tokens."""
    return answered(adapted(), storm(), prefix_caching=False, max_num_seqs=1)


STORMS: list[dict[str, Any]] = [
    {},
    {"block_size": 4, "cache_tokens": 256, "max_num_batched_tokens": 70},
    {"block_size": 8, "cache_tokens": 160, "max_num_batched_tokens": 90},
]


@pytest.mark.parametrize("limits", STORMS)
def test_no_state_of_one_adapter_is_read_by_another(limits: dict[str, Any]) -> None:
    requests = requests_of(adapted(), storm())
    list(finished(engine_of(adapted(), **limits), requests))
    assert [each.output for each in requests] == answered_alone()
    assert sum(each.cached or 0 for each in requests) > 1_500, "next to nothing was shared"


def test_quantised_weights_have_adapters_beside_them(tmp_path: Path) -> None:
    network = build("qwen3_moe of whole panels")
    network.save_pretrained(tmp_path / "base")
    shapes = shapes_of(network)
    folder = write_adapter(tmp_path / "whole", shapes, ALL[:4], by=1)
    lora = read_lora(folder, "whole")
    model = open_folder(tmp_path / "base", "", "float32", NO_TOKENIZER, bits=8, loras=[lora])
    plain = open_folder(tmp_path / "base", "", "float32", NO_TOKENIZER, bits=8)
    asked = [Asked(prompt, "") for prompt in PROMPTS]
    assert answered(model, asked) == answered(plain, asked)
    merged = merge(build("qwen3_moe of whole panels"), folder)
    expected = [generated(merged, prompt, 1) for prompt in PROMPTS]
    found = answered(model, [each._replace(adapter="whole") for each in asked])
    assert sum(a[:1] == b for a, b in zip(found, expected, strict=True)) >= 10


def test_a_gguf_file_has_adapters_in_the_order_of_its_network(tmp_path: Path) -> None:
    """Files of Llama have the rows of heads in another order than adapters."""
    folder = write_adapter(tmp_path / "whole", shapes_of(build("llama")), **PATTERNS)
    network = build("llama")
    write_gguf(network, tmp_path / "tiny.gguf")  # in few bits, as the network then is
    loras = [read_lora(folder, "whole")]
    model = open_gguf(tmp_path / "tiny.gguf", "", "float32", NO_TOKENIZER, loras=loras)
    merged = merge(network, folder)
    found = answered(model, [Asked(prompt, "whole") for prompt in PROMPTS])
    assert found == [generated(merged, prompt, TOKENS) for prompt in PROMPTS]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "DoRA": ({"use_dora": True}, "use_dora=True"),
    "biases": ({"bias": "all"}, "bias='all'"),
    "biases of its matrices": ({"lora_bias": True}, "lora_bias=True"),
    "modules of its own": ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    "tokens of its own": ({"trainable_token_indices": [3]}, "trainable_token_indices"),
    "layers that are repeated": ({"layer_replication": [[0, 1]]}, "layer_replication"),
    "experts": ({"target_parameters": ["mlp.experts"]}, "target_parameters"),
    "an invocation": ({"alora_invocation_tokens": [5]}, "alora_invocation_tokens"),
    "a key of the future": ({"use_other": 2}, "use_other=2"),
    "PiSSA": ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
    "another kind": ({"peft_type": "IA3"}, "kind 'IA3'"),
    "no rank": ({"r": "many"}, "do not fit"),
    "a rank of nothing": ({"r": 0}, "do not fit"),
    "another rank": ({"rank_pattern": {"o_proj": 5}}, "and its rank is 5"),
    "a wrong pattern": ({"alpha_pattern": {"(": 5}}, "do not fit"),
    "a scale without end": ({"lora_alpha": float("inf")}, "scaled by inf"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_computed_is_refused_by_name(name: str, tmp_path: Path) -> None:
    settings, why = REFUSED[name]
    folder = write_adapter(tmp_path, shapes_of(build("llama")))
    config = folder / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))
    with pytest.raises(ModelError) as refused:
        read_lora(folder, "mine")
    assert why in str(refused.value)
    assert "Adapter 'mine'" in str(refused.value)


WEIGHTS = {
    "lm_head.lora_A.weight": "changes lm_head",
    "model.layers.0.mlp.other_proj.lora_A.weight": "changes model.layers.0.mlp.other_proj",
    "model.embed_tokens.lora_embedding_A": "such as base_model.model.model.embed_tokens.lora_emb",
    "model.layers.0.mlp.up_proj.lora_magnitude_vector": "lora_magnitude_vector",
    "model.layers.0.self_attn.q_proj.lora_A.weight": "in their sizes",
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_have_no_place_are_refused(name: str, tmp_path: Path) -> None:
    folder = write_adapter(tmp_path, shapes_of(build("llama")), ["o_proj"])
    file = folder / "adapter_model.safetensors"
    numbers = load_file(file)
    (some, *_) = (each for each in numbers.values() if len(each) == 4)
    given = f"base_model.model.{name}"
    more = {given: some[:, :5].copy(), given.replace("_A", "_B"): some.T.copy()}
    save_file(numbers | more, file)
    why = WEIGHTS[name].replace("in their sizes", "but the model's has")
    with pytest.raises(ModelError, match=why):
        opened(build("llama"), [folder])


def test_folders_that_are_damaged_are_refused(tmp_path: Path) -> None:
    spec = "random:layers=1,hidden=32,heads=2"
    with pytest.raises(ModelError, match=r"no adapter_config\.json"):
        load(spec, adapters={"mine": str(tmp_path)})
    folder = write_adapter(tmp_path, {"model.layers.0.mlp.up_proj.weight": (64, 32)})
    with pytest.raises(ModelError, match=r"Use it with the model that it was trained for\."):
        load(spec, adapters={"mine": str(folder)})
    file = folder / "adapter_model.safetensors"
    save_file({name: each for name, each in load_file(file).items() if "_B" not in name}, file)
    with pytest.raises(ModelError, match=r"up_proj has no lora_B\)\. Download it again"):
        load(spec, adapters={"mine": str(folder)})
    file.unlink()
    with pytest.raises(ModelError, match=r"has no adapter_model\.safetensors"):
        load(spec, adapters={"mine": str(folder)})
    (folder / "adapter_config.json").write_text("[]")
    with pytest.raises(ModelError, match="of the kind"):
        load(spec, adapters={"mine": str(folder)})
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        load(spec, adapters={"mine": str(folder)})


def test_torch_computes_no_adapters(tmp_path: Path) -> None:
    shapes = {"model.layers.0.mlp.up_proj.weight": (64, 32)}
    folder = write_adapter(tmp_path, shapes)
    with pytest.raises(ModelError, match=r"not on cuda.*merge_and_unload"):
        load("random:layers=1,hidden=32,heads=2", device="cuda", adapters={"mine": str(folder)})
