"""Answers as text while their tokens come, for tokenizers that fall back to bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from relquery.model.text.render import Renderer

WORDS = ["<unk>", "</s>", "▁a", "▁", "b", "é", "日"]
BYTES = [f"<0x{byte:02X}>" for byte in (0x41, 0x0A, 0xC3, 0xA9, 0xFF, 0xE6, 0x97, 0xA5)]


def renderer() -> Renderer:
    """As Gemma's and Llama 2's: a character without a token is spelt by tokens of its bytes."""
    vocabulary = {word: number for number, word in enumerate([*WORDS, *BYTES])}
    inner = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence(steps)
    wrap: Any = PreTrainedTokenizerFast
    return Renderer(wrap(tokenizer_object=inner, eos_token="</s>", unk_token="<unk>"))


RENDERER = renderer()


@given(st.lists(st.integers(1, len(WORDS) + len(BYTES) - 1), max_size=12), st.integers(1, 3))
def test_pieces_are_the_beginning_of_the_text(tokens: list[int], at_once: int) -> None:
    spell = RENDERER.spelling()
    assert spell is not None
    told = ""
    for start in range(0, len(tokens), at_once):
        told += spell(tokens[start : start + at_once])
        assert RENDERER.decode(tokens).startswith(told)
    end = RENDERER.encode("b")
    assert (told + spell(list(end))).rstrip("\ufffd") == RENDERER.decode([*tokens, *end]).rstrip(
        "\ufffd"
    )


def test_a_valid_byte_before_an_invalid_one_is_not_told_too_early() -> None:
    spell = RENDERER.spelling()
    valid, invalid = (len(WORDS) + BYTES.index(byte) for byte in ("<0x41>", "<0xFF>"))
    assert spell is not None
    assert [spell([valid]), spell([invalid]), spell([WORDS.index("b")])] == ["", "", "��b"]
