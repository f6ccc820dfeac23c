"""Folders in few bits: GPTQ, AWQ and compressed-tensors, against the numbers that they hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from relquery.errors import ModelError, UnsupportedNetworkError
from relquery.model.formats.coded import CodedWeights
from relquery.model.formats.config import read_settings
from relquery.model.formats.quantization import read_coding
from relquery.model.native_model import open_folder
from tests.model.formats.test_gguf import WIDE
from tests.model.oracle.architectures import (
    LLAMA_LIKE,
    NO_TOKENIZER,
    build,
    generated,
    larger,
    made,
    prompts_with_shared_prefixes,
)
from tests.model.oracle.written_folders import LEFT, Form, Tensors, said, write_folders
from tests.model.test_generate import TOKENS
from tests.model.test_native import Case, answered

PROMPTS = prompts_with_shared_prefixes(12)
FORMS = {
    "gptq": Form("gptq", group=128),
    "gptq in 8 bits": Form("gptq", 8, 64),
    "gptq in 8 bits, symmetric": Form("gptq", 8, symmetric=True),
    "gptq, inputs in another order": Form("gptq", group=128, ordered=True),
    "gptq_v2": Form("gptq_v2", group=128),
    "awq": Form("awq", group=128),
    "packed, symmetric": Form("pack-quantized", symmetric=True, scales=torch.bfloat16),
    "packed": Form("pack-quantized", group=32, scales=torch.bfloat16),
    "packed, zero points in bytes": Form("pack-quantized", group=128, plain_zeros=True),
    "packed in 8 bits": Form("pack-quantized", 8, 128),
    "packed, inputs in another order": Form("pack-quantized", group=32, ordered=True),
    "packed, in small groups": Form("pack-quantized", group=16, symmetric=True),
    "bytes": Form("int-quantized", 8),
    "bytes, symmetric": Form("int-quantized", 8, symmetric=True, scales=torch.bfloat16),
}
AS_FLOATS = {"gptq, inputs in another order", "packed, inputs in another order"} | {
    "packed, in small groups"
}
"""Whose groups do not fall into blocks."""


def opened(folder: Path, dtype: str = "float32") -> Any:
    return open_folder(folder, "tiny", dtype, NO_TOKENIZER)


def weights_of(folder: Path) -> CodedWeights:
    coding = read_coding(read_settings(folder, ""))
    assert coding is not None
    return CodedWeights(folder, coding)


def check_numbers(few: Path, whole: Path) -> None:
    """A folder's numbers are those of another, bit by bit."""
    weights = weights_of(few)
    for each, numbers in load_file(whole / "model.safetensors").items():
        assert np.array_equal(weights[each].floats(), numbers.numpy()), each


@pytest.mark.parametrize("name", FORMS)
def test_numbers_and_answers_are_those_that_a_folder_holds(name: str, tmp_path: Path) -> None:
    network = larger(made("Llama", LLAMA_LIKE, WIDE))
    few, whole = write_folders(network, tmp_path, FORMS[name])
    check_numbers(few, whole)
    stock: Any = AutoModelForCausalLM.from_pretrained(whole)
    stock.generation_config.eos_token_id = None
    found, plain = opened(few), opened(whole)
    expected = [generated(stock, prompt, TOKENS) for prompt in PROMPTS]
    assert answered(Case(found, PROMPTS, [])) == expected
    assert len({token for each in expected for token in each}) > 5
    sizes = [each._network.weight_bytes for each in (found, plain)]
    assert sizes[0] < sizes[1] / 2 or name in AS_FLOATS


@pytest.mark.parametrize("name", ["gptq", "awq", "bytes, symmetric"])
def test_products_in_bfloat16_are_those_of_rounded_numbers(name: str, tmp_path: Path) -> None:
    network = larger(made("Llama", LLAMA_LIKE, WIDE))
    few, whole = (
        opened(each, "bfloat16") for each in write_folders(network, tmp_path, FORMS[name])
    )
    assert answered(Case(few, PROMPTS, [])) == answered(Case(whole, PROMPTS, []))
    assert few.version != whole.version
    assert few.fingerprint() != whole.fingerprint()


@pytest.mark.parametrize("network", ["qwen2", "phi3", "qwen3_moe of whole panels", "gemma3"])
@pytest.mark.parametrize("name", ["awq", "packed"])
def test_biases_joined_matrices_and_experts_are_read(
    network: str, name: str, tmp_path: Path
) -> None:
    few, whole = write_folders(build(network), tmp_path, replace(FORMS[name], group=32))
    check_numbers(few, whole)
    assert answered(Case(opened(few), PROMPTS, [])) == answered(Case(opened(whole), PROMPTS, []))


def test_what_a_folder_leaves_as_it_is_stays_so(tmp_path: Path) -> None:
    some = ("q_proj", "1.mlp.down_proj")
    few, whole = write_folders(build("llama"), tmp_path, Form("gptq"), (*LEFT, *some))
    names = set(load_file(few / "model.safetensors"))
    assert {f"model.layers.{at}.self_attn.q_proj.weight" for at in (0, 1)} < names
    check_numbers(few, whole)
    assert answered(Case(opened(few), PROMPTS, [])) == answered(Case(opened(whole), PROMPTS, []))


def test_a_head_in_few_bits_is_read(tmp_path: Path) -> None:
    network = larger(made("Llama", LLAMA_LIKE, {"vocab_size": 128}))
    few, whole = write_folders(network, tmp_path, Form("gptq", 8), ("embed", "norm"))
    assert "lm_head.qweight" in load_file(few / "model.safetensors")
    assert answered(Case(opened(few), PROMPTS, [])) == answered(Case(opened(whole), PROMPTS, []))


def test_weights_in_few_bits_are_not_rounded_again(tmp_path: Path) -> None:
    few, _ = write_folders(build("llama"), tmp_path, Form("gptq"))
    with pytest.raises(ModelError, match=r"in few bits already\. Leave quantize out"):
        open_folder(few, "tiny", "float32", NO_TOKENIZER, bits=8)
    (tmp_path / "small").mkdir()
    few, _ = write_folders(build("llama"), tmp_path / "small", FORMS["packed, in small groups"])
    with pytest.raises(ModelError, match=r"no weights in 4 or 8 bits.*Leave dtype out\.$"):
        opened(few, "int8")


def told(layout: str, **changes: Any) -> dict[str, Any]:
    """A quantization_config. changes: those that begin with `scheme_` of a group, with
    `weights_` of its weights."""
    found = said(Form(layout, 8 if layout == "int-quantized" else 4, 128))
    scheme = found.get("config_groups", {}).get("group_0", {})
    for key, value in changes.items():
        of, _, name = key.partition("_")
        inner = {"scheme": scheme, "weights": scheme.get("weights")}.get(of)
        (found if inner is None else inner)[key if inner is None else name] = value
    return found


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quantized by 'bitsandbytes'"),
        ({"quant_method": "fp8"}, "quantized by 'fp8', and the engine reads awq, compressed-"),
        ({"load_in_8bit": True}, "no quant_method"),
        ("int4", "quantization_config is 'int4'; it must be an object"),
        (told("awq", bits=3), "bits is 3"),
        (told("awq", version="gemv"), "version is gemv, and the engine reads gemm"),
        (told("awq", group_size="128"), "group_size is '128'"),
        (told("gptq", bits=3), "bits is 3, and the engine reads 4 and 8"),
        (told("gptq", checkpoint_format="marlin"), "checkpoint_format is marlin"),
        (told("gptq", format="gptq_v2"), "checkpoint_format is gptq and gptq_v2"),
        (told("gptq", dynamic={"-:.*": {}}), "dynamic is"),
        (told("gptq", odd=1), "not known: odd"),
        (told("gptq", adapter={"rank": 8}), "adapter is"),
        (told("gptq", is_marlin_format=True), "is_marlin_format is True"),
        (told("gptq", pack_dtype="int64"), "pack_dtype is 'int64'"),
        (told("awq", desc_act=True), "desc_act is True"),
        (told("pack-quantized", format="float-quantized"), "its format is 'float-quantized'"),
        (told("pack-quantized", format="nvfp4-pack-quantized"), "'nvfp4-pack-quantized'"),
        (told("pack-quantized", kv_cache_scheme={"num_bits": 8}), "kv_cache_scheme is"),
        (told("pack-quantized", moe_sparsity_config={"a": 1}), "moe_sparsity_config is"),
        (told("pack-quantized", scheme_output_activations={"a": 1}), "output_activations is"),
        (told("pack-quantized", scheme_format="int-quantized"), "format is 'int-quantized'"),
        (told("pack-quantized", scheme_odd=1), "not known: odd"),
        (told("pack-quantized", weights_dynamic=True), "dynamic is True"),
        (told("pack-quantized", weights_block_structure=[128, 128]), "block_structure is"),
        (told("pack-quantized", transform_config={"R1": {}}), "transform_config is"),
        (told("pack-quantized", sparsity_config={"format": "sparse-24-bitmask"}), "sparse-24"),
        (told("pack-quantized", config_groups={}), "config_groups are of 0 kinds"),
        (told("pack-quantized", config_groups={"a": []}), "must be an object"),
        (told("pack-quantized", config_groups={"a": {"weights": None}}), "nothing of weights"),
        (told("pack-quantized", weights_num_bits=2), "num_bits is 2"),
        (told("pack-quantized", weights_type="float"), "type is 'float'"),
        (told("pack-quantized", weights_strategy="block"), "strategy is 'block'"),
        (told("pack-quantized", weights_odd=1), "not known: odd"),
        (told("int-quantized", weights_num_bits=4), "int-quantized has 4 bits"),
    ],
)
def test_what_is_not_read_is_refused_by_name(config: Any, message: str, tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": config}))
    with pytest.raises(UnsupportedNetworkError, match=message):
        opened(tmp_path)


def test_groups_of_different_kinds_are_refused(tmp_path: Path) -> None:
    few, _ = write_folders(build("llama"), tmp_path, Form("pack-quantized", symmetric=True))
    file = few / "config.json"
    config = json.loads(file.read_text())
    groups = config["quantization_config"]["config_groups"]
    groups["group_1"] = json.loads(json.dumps(groups["group_0"]))
    file.write_text(json.dumps(config))
    opened(few).close()
    groups["group_1"]["weights"]["num_bits"] = 8
    file.write_text(json.dumps(config))
    with pytest.raises(UnsupportedNetworkError, match="are of 2 kinds"):
        opened(few)


UP = "model.layers.0.mlp.up_proj"
Change = Callable[[Tensors, str], None]


def without(tensors: Tensors, name: str) -> None:
    del tensors[name]


def shorter(tensors: Tensors, name: str) -> None:
    tensors[name] = tensors[name][:-1].contiguous()


def flat(tensors: Tensors, name: str) -> None:
    tensors[name] = tensors[name].reshape(-1)


def other_kind(tensors: Tensors, name: str) -> None:
    whole = tensors[name].dtype in (torch.int32, torch.int8)
    tensors[name] = tensors[name].float() if whole else tensors[name].to(torch.int32)


def beyond(tensors: Tensors, name: str) -> None:
    tensors[name][-1] = 1000


def not_finite(tensors: Tensors, name: str) -> None:
    tensors[name][:] = torch.inf


def beside(tensors: Tensors, name: str) -> None:
    """A second matrix."""
    tensors[name] = torch.zeros(64, 32)


@pytest.mark.parametrize(
    ("layout", "change", "part", "message"),
    [
        ("gptq", without, "scales", f"lacks {UP}.scales"),
        ("gptq", without, "qzeros", f"lacks {UP}.qzeros"),
        ("gptq", without, "qweight", f"lacks {UP}.weight"),
        ("gptq", without, "g_idx", f"lacks {UP}.g_idx"),
        ("gptq", shorter, "scales", r"scales is of \(64, 0\) and not of \(64, 1\)"),
        ("gptq", shorter, "qweight", "g_idx is of"),
        ("gptq", shorter, "g_idx", "g_idx is of"),
        ("gptq", beyond, "g_idx", "names a group that is not there"),
        ("gptq", flat, "qweight", "1 dimensions"),
        ("gptq", other_kind, "qweight", f"lacks {UP}.weight"),
        ("gptq", other_kind, "scales", "whole numbers"),
        ("gptq", other_kind, "qzeros", "no whole numbers"),
        ("gptq", not_finite, "scales", "no finite numbers"),
        ("gptq", beside, "weight", "has no place for"),
        ("awq", shorter, "qweight", "codes of AWQ are of 31 inputs"),
        ("awq", shorter, "qzeros", "qzeros is of"),
        ("pack-quantized", without, "weight_scale", "lacks"),
        ("pack-quantized", without, "weight_zero_point", "lacks"),
        ("pack-quantized", shorter, "weight_zero_point", "weight_zero_point is of"),
        ("pack-quantized", shorter, "weight_packed", "scale is of"),
        ("int-quantized", without, "weight_scale", "lacks"),
        ("int-quantized", other_kind, "weight_zero_point", "no whole numbers"),
    ],
)
def test_a_folder_that_lacks_something_says_what(
    layout: str, change: Change, part: str, message: str, tmp_path: Path
) -> None:
    bits = 8 if layout == "int-quantized" else 4
    few, _ = write_folders(build("llama"), tmp_path, Form(layout, bits, ordered=layout == "gptq"))
    tensors = load_file(few / "model.safetensors")
    change(tensors, f"{UP}.{part}")
    save_file(tensors, few / "model.safetensors")
    with pytest.raises(ModelError, match=message):
        opened(few)


_ODD: tuple[Any, ...] = (None, -1, 0, 3, 2**31, 2**60, 0.5, "odd", [], {}, True, [1, 2], {"a": 1})


def damage(folder: Path, rng: np.random.Generator) -> None:
    """Change what a folder says: a part of its quantization_config, or of what its file says of a
    weight; or cut the file."""
    config, file = folder / "config.json", folder / "model.safetensors"
    if rng.random() < 0.4:
        found = json.loads(config.read_text())
        inner = found["quantization_config"]
        while True:
            key = list(inner)[rng.integers(len(inner))]
            if not isinstance(inner[key], dict) or not inner[key] or rng.random() < 0.2:
                break
            inner = inner[key]
        inner[key] = _ODD[rng.integers(len(_ODD))]
        config.write_text(json.dumps(found))
        return
    whole = file.read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    header, rest = json.loads(whole[8:begin]), whole[begin:]
    header.pop("__metadata__", None)
    names = [each for each in header if "proj" in each]
    one, other = (header[names[at]] for at in rng.integers(len(names), size=2))
    match rng.integers(7):
        case 0:
            one["dtype"] = ("F32", "F16", "BF16", "I8", "I32", "I64", "F8_E4M3")[rng.integers(7)]
        case 1:
            one["shape"] = one["shape"][::-1]
        case 2:
            one["shape"] = [[], [0], [1, 0], [-1, -1], [2**40, 2**40], ["a"]][rng.integers(6)]
        case 3:
            one["shape"], other["shape"] = other["shape"], one["shape"]
        case 4:
            for key in list(one):
                one[key], other[key] = other[key], one[key]
        case 5:
            one["shape"] = [
                size * 2**step for size, step in zip(one["shape"], (1, -1), strict=False)
            ]
        case _:
            rest = rest[: rng.integers(len(rest))]
    said = json.dumps(header).encode()
    file.write_bytes(len(said).to_bytes(8, "little") + said + rest)


@pytest.mark.parametrize("layout", ["gptq", "awq", "pack-quantized", "int-quantized"])
def test_a_damaged_folder_opens_or_is_an_error(layout: str, tmp_path: Path) -> None:
    form = Form(layout, 8 if layout == "int-quantized" else 4, 32)
    few, _ = write_folders(build("llama"), tmp_path, form)
    rng, opens = np.random.default_rng(0), 0
    for _ in range(60):
        copy = Path(shutil.copytree(few, tmp_path / "copy", dirs_exist_ok=True))
        damage(copy, rng)
        try:
            opened(copy).close()
            opens += 1
        except ModelError:
            continue
    assert opens < 50
