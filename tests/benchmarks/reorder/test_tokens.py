"""Llama 3's tokens come from its ranks."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reorder import tokens as reorder_tokens
from benchmarks.reorder.tokens import llama3
from tests.data import data_path

RANKS = [bytes([byte]) for byte in range(256)] + [b"th", b"he", b"the", b" the", b"\n\n"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "ranks"
    lines = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(RANKS)]
    path.write_bytes(b"\n".join(lines))
    return path


def test_bytes_merge_by_rank_inside_a_piece(ranks: Path) -> None:
    encode = llama3(ranks)
    assert encode is not None
    first, second = encode(["the thé", "xthe\nthe\n\nthe 12345"])
    assert spell(first) == [b"the", b" ", b"th", b"\xc3", b"\xa9"]
    digits = [b" ", b"1", b"2", b"3", b"4", b"5"]
    assert spell(second) == [b"x", b"the", b"\n", b"the", b"\n\n", b"the", *digits]


def spell(ids: object) -> list[bytes]:
    return [RANKS[token] for token in np.asarray(ids).tolist()]


@settings(max_examples=50)
@given(values=st.lists(st.text("the 1\n.", min_size=1, max_size=8), min_size=1, max_size=6))
def test_lines_encoded_apart_give_the_tokens_of_the_whole(ranks: Path, values: list[str]) -> None:
    prompt = "".join(f"label: {value}\n" for value in values)
    encode = llama3(ranks)
    assert encode is not None
    by_line = np.asarray(encode([prompt])[0]).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reorder_tokens, "LINE", re.compile("(?!)"))
        whole = llama3(ranks)
        assert whole is not None
        assert np.asarray(whole([prompt])[0]).tolist() == by_line


def test_without_the_file_there_are_no_such_tokens(tmp_path: Path) -> None:
    assert llama3(tmp_path / "absent") is None


@pytest.mark.data
def test_llama_3_tokens_are_those_of_its_models() -> None:
    encode = llama3(data_path("tokenizers/llama3_tokenizer.model"))
    assert encode is not None
    assert np.asarray(encode(["Hello world"])[0]).tolist() == [9906, 1917]
