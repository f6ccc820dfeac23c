"""GGUF files: formats against the library `gguf`, networks against `transformers`, and damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quants

from relquery._native import Rows, formats
from relquery.errors import ModelError
from relquery.model.load import load
from relquery.model.native_model import open_gguf
from tests.model.oracle.architectures import (
    LLAMA_LIKE,
    NO_TOKENIZER,
    build,
    generated,
    larger,
    made,
    native,
    prompts_with_shared_prefixes,
)
from tests.model.oracle.written_gguf import write_gguf
from tests.model.test_generate import TOKENS
from tests.model.test_native import Case, answered

NAMES = [
    "gemma2", "gemma3", "granite", "linear", "llama", "llama3", "longrope", "phi3", "phi3_partial",
    "qwen3", "qwen3_moe", "smollm3", "yarn",
]  # fmt: skip
FORMATS = [each for each, *_ in formats() if each in GGMLQuantizationType.__members__]


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_those_of_the_format_bit_by_bit(name: str) -> None:
    number = [each for each, *_ in formats()].index(name)
    _, block, size = formats()[number]
    rows, width = 200, 512
    bits = np.random.default_rng(number).integers(0, 256, (rows, width // block * size), np.uint8)
    with np.errstate(all="ignore"):
        wanted = quants.dequantize(bits, GGMLQuantizationType[name]).astype(np.float32)
    found = Rows(bits.reshape(-1), number, rows, width).floats()
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.array_equal(found[~np.isnan(wanted)], wanted[~np.isnan(wanted)])


def check(network: Any, path: Path) -> None:
    """A network, written to a file, generates what the stock one does with the file's numbers."""
    write_gguf(network, path)
    asked = prompts_with_shared_prefixes(12)
    model = open_gguf(path, "tiny", "float32", NO_TOKENIZER)
    fit = [each for each in asked if len(each) + TOKENS <= model.context]
    assert len(fit) > 5
    expected = [generated(network, prompt, TOKENS) for prompt in fit]
    assert answered(Case(model, fit, expected)) == expected


@pytest.mark.parametrize("name", NAMES)
def test_greedy_output_is_that_of_transformers(name: str, tmp_path: Path) -> None:
    check(build(name), tmp_path / "tiny.gguf")


@pytest.mark.parametrize("more", [{}, {"tie_word_embeddings": True}], ids=["untied", "tied"])
def test_biases_and_tied_embeddings_are_read(more: dict[str, Any], tmp_path: Path) -> None:
    network = larger(made("Qwen2", LLAMA_LIKE, more))
    network.generation_config.eos_token_id = None
    check(network, tmp_path / "tiny.gguf")


WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8}
"""So wide that rows have blocks of all formats, and gates are whole panels."""


@pytest.mark.parametrize("name", [*FORMATS[3:], "Q4_K Q6_K Q4_1"])
def test_weights_in_few_bits_give_what_their_numbers_give(name: str, tmp_path: Path) -> None:
    path, network = tmp_path / "tiny.gguf", larger(made("Llama", LLAMA_LIKE, WIDE))
    network.generation_config.eos_token_id = None
    write_gguf(network, path, formats=name.split())
    prompts = prompts_with_shared_prefixes(12)
    for dtype in ("float32", "bfloat16"):
        few, whole = open_gguf(path, "", dtype, NO_TOKENIZER), native(network, dtype=dtype)
        assert few._network.weight_bytes < whole._network.weight_bytes / (
            2 if dtype[0] == "f" else 1.2
        )
        found = answered(Case(few, prompts, []))
        assert len({token for each in found for token in each}) > 5
        assert found == answered(Case(whole, prompts, []))
        if dtype == "float32":
            assert found == [generated(network, prompt, TOKENS) for prompt in prompts]


def letters() -> dict[str, Any]:
    """A tokenizer of letters and a few merges, as a file says it."""
    tokens = [f"<{number}>" for number in range(3)]
    tokens += [chr(ord("!") + number) for number in range(90)] + ["ab", "abc", "Ġ", "Ġa"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * 94,
        "tokenizer.ggml.merges": ["a b", "ab c", "Ġ a"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file with all that one needs."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(build("llama"), path, letters())
    return path.read_bytes()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"llama.block_count": 300_000_000}, "block_count is not 2"),
        ({"llama.embedding_length": 2**64 - 1}, "embedding_length is 18446744073709551615"),
        ({"llama.attention.head_count": 2**60}, "head_count is 1152921504606846976"),
        ({"llama.rope.freq_base": "much"}, "freq_base is 'much'; it must be a number"),
        ({"llama.rope.scaling.type": "odd", "llama.rope.scaling.factor": 2.0}, "is 'odd'"),
        ({"llama.expert_count": 8}, "a key that is not known: expert_count"),
        ({"tokenizer.chat_template": "\udcff"}, "tokenizer in the GGUF file"),
        ({"tokenizer.ggml.pre": "odd"}, "cuts text as 'odd'"),
        ({"tokenizer.ggml.merges": ["x"]}, "tokenizer in the GGUF file"),
    ],
)
def test_what_cannot_be_is_told(said: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    with patch.object(GGUFWriter, "_pack_val", _packed):
        write_gguf(build("llama"), path, letters() | said)
    with pytest.raises(ModelError, match=message):
        open_gguf(path, "tiny", "float32")


def test_what_has_no_few_bits_is_not_told_to_be_rounded(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(build("llama"), path, formats=["F16"])
    with pytest.raises(ModelError, match=r"Leave dtype out, or give a GGUF file in few bits\.$"):
        open_gguf(path, "tiny", "int8", NO_TOKENIZER)


_pack = GGUFWriter._pack_val


def _packed(writer: GGUFWriter, value: Any, kind: Any, add_vtype: bool, **more: Any) -> bytes:
    """Text that is not UTF-8, too."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    return bytes(_pack(writer, value, kind, add_vtype, **more))


def test_a_factor_without_a_kind_scales_linearly(tmp_path: Path) -> None:
    network = build("linear")
    found = []
    for kind in ({}, {"llama.rope.scaling.type": "linear"}):
        path = tmp_path / "tiny.gguf"
        write_gguf(build("llama"), path, said={"llama.rope.scaling.factor": 4.0} | kind)
        found.append(open_gguf(path, "tiny", "float32", NO_TOKENIZER).decoder)
    assert found[0] == found[1]
    assert found[0].layers == native(network).decoder.layers


def damaged(whole: bytes, seed: int) -> bytes:
    """A file that is cut, or whose first part, which says what the rest is, has other bytes."""
    rng = np.random.default_rng(seed)
    found, said = bytearray(whole), whole.index(b"blk.1.ffn_norm") + 100
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(0, said))
        match rng.integers(5):
            case 0:
                found[at : at + 1] = bytes([rng.integers(256)])
            case 1:
                found[at : at + 8] = (0, 1, 2**31, 2**60, 2**64 - 1)[rng.integers(5)].to_bytes(
                    8, "little"
                )
            case 2:
                del found[at : at + int(rng.integers(1, 9))]
            case 3:
                found[at:at] = rng.integers(0, 256, int(rng.integers(1, 9)), np.uint8).tobytes()
            case _:
                del found[int(rng.integers(0, len(found) + 1)) :]
    return bytes(found)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 20))]
)
def test_a_damaged_file_opens_or_is_an_error(part: int, whole: bytes, tmp_path: Path) -> None:
    path, opened = tmp_path / "tiny.gguf", 0
    path.write_bytes(whole)
    open_gguf(path, "tiny", "float32").close()
    with pytest.raises(ModelError, match="stay in its formats"):
        load(str(path), quantize="int8")
    for number in range(100):
        path.write_bytes(damaged(whole, 100 * part + number))
        try:
            open_gguf(path, "tiny", "float32").close()
            opened += 1
        except ModelError:
            continue
    assert opened < 80
