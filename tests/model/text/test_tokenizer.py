"""Our own tokenizer, against that of transformers on the same folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from relquery.demo.files import model_path
from relquery.errors import ModelError
from relquery.model.text.tokenizer import read_tokenizer

OWN = read_tokenizer(model_path())
_load: Callable[..., Any] = AutoTokenizer.from_pretrained
STOCK = _load(str(model_path()))


@given(st.text(max_size=80))
def test_texts_have_the_same_tokens_and_come_back(text: str) -> None:
    ids = STOCK(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert OWN.encode([text]) == [ids]
    assert OWN.decode(ids) == STOCK.decode(ids, skip_special_tokens=True)
    assert OWN.encode_whole(text) == STOCK(text)["input_ids"]


def test_special_tokens_and_the_chat_template_are_the_same() -> None:
    assert OWN.vocabulary == STOCK.get_vocab()
    assert OWN.id_of("eos_token") == STOCK.eos_token_id
    assert set(OWN.special_ids) == set(map(str, STOCK.all_special_tokens))
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why? <b>"}]
    expected = STOCK.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert OWN.render(chat) == expected


def test_a_folder_without_a_tokenizer_is_an_error_with_a_remedy(tmp_path: Any) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer\.json\. Write one"):
        read_tokenizer(tmp_path)
