"""A tokenizer alone gives the ids that the engine would compute for the same text."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from relquery.backends.tokenizer import load_tokenizer
from relquery.demo.files import model_path
from relquery.errors import ModelError

TEXTS = ["The Sunken Letter\nyear: 1999", "", "naïve — 映画", "<|end|> is text, and so is <s>"]


@pytest.fixture(scope="module")
def stock() -> Any:
    return AutoTokenizer.from_pretrained(str(model_path()))


def test_ids_are_those_of_transformers_without_special_tokens(stock: Any) -> None:
    texts = [*TEXTS, *(f"{token} in a text" for token in stock.all_special_tokens)]
    expected = stock(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert load_tokenizer("demo")(texts) == expected


def test_a_folder_and_a_file_give_the_same_tokenizer(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    shutil.copy(model_path() / "tokenizer.json", file)
    expected = load_tokenizer("demo")(TEXTS)
    assert load_tokenizer(str(tmp_path))(TEXTS) == expected
    assert load_tokenizer(str(file))(TEXTS) == expected


def test_a_file_that_asks_to_cut_and_pad_texts_is_not_followed(tmp_path: Path) -> None:
    tokenizer: Any = Tokenizer.from_file(str(model_path() / "tokenizer.json"))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(str(tmp_path))(TEXTS) == load_tokenizer("demo")(TEXTS)


def test_what_is_no_tokenizer_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "tokenizer.json").write_text("{}")
    for name, said in (
        ("nowhere", r"nowhere does not exist.*'demo', a model folder"),
        ("dmo", "Did you mean 'demo'"),
        (str(tmp_path / "empty"), r"no tokenizer\.json.*save_pretrained"),
        (str(tmp_path), r"cannot be read as a tokenizer.*save_pretrained"),
    ):
        with pytest.raises(ModelError, match=said):
            load_tokenizer(name)
