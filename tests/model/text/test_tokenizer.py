"""Our own tokenizer, against that of transformers on the same folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from relquery.demo.files import model_path
from relquery.errors import ModelError
from relquery.model.text.render import Renderer
from relquery.model.text.tokenizer import read_tokenizer
from relquery.prompt import Role, Span
from tests.model.text.test_render import flat_tokens
from tests.real.conftest import needed

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


def check_raw(own: Any, stock: Any) -> None:
    renderer, names = Renderer(own), sorted(own.special_ids)
    for text in ("Tea", *names, f"a{names[0]} b\n{names[-1]}", f"{names[-1]}{names[0]}é\n\n x"):
        (raw,) = renderer.render([(Span(text, Role.NONE, raw=True),)])
        assert flat_tokens(raw) == stock(text)["input_ids"], text
        (plain,) = renderer.render([(Span(text, Role.NONE),)])
        ordinary = stock(text, add_special_tokens=False, split_special_tokens=True)
        assert flat_tokens(plain) == ordinary["input_ids"], text


def test_a_raw_text_names_special_tokens_and_no_other_text_does() -> None:
    check_raw(OWN, STOCK)
    (said,) = Renderer(OWN).render([(Span(f"a{sorted(OWN.special_ids)[0]}"),)])
    (like,) = Renderer(OWN).render([(Span("a"),)])
    assert len(flat_tokens(said)) > len(flat_tokens(like)) + 1


@pytest.mark.real
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_raw_texts_of_real_models_have_the_tokens_of_transformers(name: str) -> None:
    folder = str(needed(name))
    check_raw(read_tokenizer(Path(folder)), _load(folder))


TOOL = {"name": "weather", "description": "Of a <city> & é", "parameters": {"type": "object"}}
DOCUMENT = {"title": "One", "text": "Once."}
SHAPES = {
    "tools as lines": "{% for t in tools or () %}{{ t | tojson }}\n{% endfor %}",
    "tools indented": "{{ tools | tojson(indent=4) }}",
    "tools in ASCII": "{{ tools | tojson(ensure_ascii=True) }}{{ tools | tojson(False, 2) }}",
    "tools sorted": "{{ tools | tojson(sort_keys=True) }}",
    "a date": "{{ date_string if date_string is defined else strftime_now('%d %b %Y') }}",
    "a macro and a namespace": (
        "{% macro said(m) %}[{{ m.role }}] {{ m['content'] }}{% endmacro %}"
        "{% set seen = namespace(users=0) %}{% for m in messages %}"
        "{% if m.role == 'user' %}{% set seen.users = seen.users + 1 %}{% endif %}"
        "{{ said(m) }}{% endfor %}{{ seen.users }}"
    ),
    "blocks on lines": (
        "{% for m in messages %}\n    {% if m.role != 'system' %}\n{{- m.content }}\n"
        "    {%- endif %}\n{% endfor %}\n{% if add_generation_prompt %}A:{% endif %}"
    ),
    "what is learned": (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    ),
    "a loop that is left": (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}"
        "{% endfor %}"
    ),
    "special tokens": "{{ bos_token }}{{ messages[-1]['content'] }}{{ eos_token }}",
    "methods of texts": "{{ messages[0]['content'].strip().split('.')[0].upper() }}",
    "documents": "{% if documents %}{{ documents }}{% else %}none{% endif %}",
}
"""What public chat templates do."""


@pytest.mark.parametrize("shape", SHAPES)
def test_templates_of_all_shapes_say_what_they_say_in_transformers(shape: str) -> None:
    own, stock = replace(OWN, chat_template=SHAPES[shape]), _load(str(model_path()))
    stock.chat_template = SHAPES[shape]
    chat = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Why? <b>"}]
    for more in ({}, {"tools": [TOOL]}, {"date_string": "1 May 2026", "documents": [DOCUMENT]}):
        expected = stock.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True, **more
        )
        assert own.render(chat, **more) == expected


def test_a_folder_without_a_tokenizer_is_an_error_with_a_remedy(tmp_path: Any) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer\.json\. Write one"):
        read_tokenizer(tmp_path)
