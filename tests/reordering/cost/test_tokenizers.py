"""Tokenizers of other libraries count what they themselves give, without special tokens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizer

from relquery.backends.tokenizer import load_tokenizer
from relquery.demo.files import model_path
from relquery.errors import ConfigError
from relquery.reordering.cost.tokens import as_encode
from tests.reordering.strategies import letters

TEXTS = ["column: value\n", "é😀 <|end|>", "", "\n\n x", "a " * 600]


class Slow(PreTrainedTokenizer):
    """A tokenizer in Python, a token per character, that adds special tokens unless told not to."""

    @property
    def vocab_size(self) -> int:
        return 2**17

    def get_vocab(self) -> dict[str, int]:
        return {}

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return ord(token)

    def build_inputs_with_special_tokens(self, ids: list[int], other: Any = None) -> list[int]:
        return [1, *ids, 2]


class LikeTiktoken:
    """The two methods of a tiktoken.Encoding; `encode` refuses special tokens in a text."""

    def encode_ordinary(self, text: str) -> list[int]:
        return list(text.encode())

    def encode(self, text: str) -> list[int]:
        raise ValueError(text)


class LikeSentencepiece:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())


def fast() -> Any:
    return AutoTokenizer.from_pretrained(str(model_path()))


def cut_and_padded() -> Tokenizer:
    tokenizer: Tokenizer = fast().backend_tokenizer
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8)
    return tokenizer


@pytest.mark.parametrize("make", [fast, cut_and_padded, lambda: fast().backend_tokenizer])
def test_a_hugging_face_tokenizer_counts_like_its_file(make: Callable[[], Any]) -> None:
    assert as_encode(make())(TEXTS) == load_tokenizer("demo")(TEXTS)


def test_the_tokenizer_of_the_user_stays_as_it_is() -> None:
    given: Any = cut_and_padded()
    as_encode(given)(TEXTS)
    assert given.truncation["max_length"] == 3
    assert given.padding["length"] == 8


def test_a_slow_tokenizer_adds_no_special_tokens() -> None:
    given: Any = cast(Any, Slow)(model_max_length=10)
    assert given("ab")["input_ids"] == [1, 97, 98, 2]
    assert as_encode(given)(TEXTS) == [list(map(ord, text)) for text in TEXTS]


def test_a_tokenizer_of_one_text_is_asked_text_by_text() -> None:
    for given in (LikeTiktoken(), LikeSentencepiece()):
        assert as_encode(given)(TEXTS) == [list(text.encode()) for text in TEXTS]


def test_a_function_is_taken_as_it_is_and_what_is_no_tokenizer_is_refused() -> None:
    taken: Any = as_encode(letters)
    assert taken is letters
    said = "must be a function from texts to token ids, or a token"
    for given in (7, "demo", object(), ["a"]):
        with pytest.raises(ConfigError, match=said):
            as_encode(given)


def test_none_of_these_libraries_is_imported() -> None:
    code = (
        "import sys; from relquery.reordering.reorder import reorder; "
        "reorder({'a': ['x']}, tokenizer=lambda texts: [[1] for _ in texts]); "
        "sys.exit(bool({'transformers', 'tokenizers', 'tiktoken', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
