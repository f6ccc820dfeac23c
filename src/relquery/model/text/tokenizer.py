"""A model's tokenizer: text to token ids and back, special tokens, and the chat template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from relquery.errors import ModelError
from relquery.model.formats.config import read_object

FILE = "tokenizer.json"
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_NO_LIMIT = 1 << 30  # tokens; tokenizers without a limit say more
_CLEANED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)
"""What a tokenizer that cleans up replaces in decoded text."""


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Token ids of text.

    backend: is made to cut and pad nothing, and to read special tokens that a text names as
    ordinary text. special: tokens by what they are for ("eos_token"), as chat templates are told
    them.
    """

    backend: Backend
    special: Mapping[str, str]
    chat_template: str = ""
    cleans_up: bool = False
    """Whether blanks before punctuation go from decoded text."""
    longest: int | None = None
    """Tokens of a text at most, where its files say so."""
    cut_side: str = "right"
    """Where a text that is longer loses tokens."""

    def __post_init__(self) -> None:
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""
        encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [each.ids for each in encodings]

    def encode_whole(self, text: str) -> list[int]:
        """The ids of a text, with the special tokens that a model is trained to read around it."""
        return list(self.backend.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special tokens."""
        text = self.backend.decode(list(tokens), skip_special_tokens=True)
        if self.cleans_up:
            for before, after in _CLEANED:
                text = text.replace(before, after)
        return text

    def __len__(self) -> int:
        """How many tokens there are."""
        return int(self.backend.get_vocab_size())

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """All tokens, with those that were added."""
        return dict(self.backend.get_vocab())

    @cached_property
    def special_ids(self) -> dict[str, int]:
        """Ids of special tokens, such as the end of a turn, by their text."""
        added = self.backend.get_added_tokens_decoder()
        return {str(token.content): number for number, token in added.items() if token.special}

    def id_of(self, purpose: str) -> int | None:
        """The id of a special token, by what it is for."""
        token = self.special.get(purpose)
        return None if token is None else self.backend.token_to_id(token)

    def render(self, chat: Sequence[Mapping[str, Any]], **more: Any) -> str:
        """The text of a chat, up to where the answer begins. Raises what the template raises."""
        told = {"tools": None, "documents": None, **self.special, **more}
        return str(self._template.render(messages=chat, add_generation_prompt=True, **told))

    def digest(self) -> bytes:
        """Of all that determines how text becomes tokens and vice versa."""
        told = repr((sorted(self.special.items()), self.chat_template, self.cleans_up))
        whole = hashlib.sha256(told.encode("utf-8", "surrogatepass"))
        whole.update(self.backend.to_str().encode())
        return whole.digest()

    @cached_property
    def _template(self) -> Any:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        return environment.from_string(self.chat_template)


class _Generation(Extension):
    """The tag by which templates mark answers for training, which changes no text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """What the tag encloses."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def as_tokenizer(given: object) -> Tokenizer:
    """A tokenizer that a user gives: of relquery, of `tokenizers`, or of transformers with one of
    those inside. Raises ModelError."""
    if isinstance(given, Tokenizer):
        return given
    backend = getattr(given, "backend_tokenizer", given)
    if not isinstance(backend, Backend):
        raise ModelError(
            f"tokenizer is {given!r}; it must be a tokenizer of `tokenizers`, or a fast one of "
            "transformers, e.g. AutoTokenizer.from_pretrained(...). Without it the model's own is "
            "used."
        )
    told: Any = given
    backend = Backend.from_str(backend.to_str())  # a copy, as it is changed
    longest = getattr(told, "model_max_length", None)
    return Tokenizer(
        backend,
        {name: str(token) for name in _SPECIAL if (token := getattr(told, name, None))},
        _default(getattr(told, "chat_template", None)),
        bool(getattr(told, "clean_up_tokenization_spaces", False)),
        longest if isinstance(longest, int) and longest < _NO_LIMIT else None,
        str(getattr(told, "truncation_side", "right")),
    )


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder with tokenizer.json. Raises ModelError."""
    file = folder / FILE
    if not file.is_file():
        raise ModelError(
            f"The folder {folder} has no {FILE}. Write one with "
            "AutoTokenizer.from_pretrained(...).save_pretrained(folder), or pass tokenizer=."
        )
    backend = read_backend(file)
    told = read_object(folder / "tokenizer_config.json")
    mapped = read_object(folder / "special_tokens_map.json")
    special = {
        name: str(value.get("content") if isinstance(value, dict) else value)
        for name in _SPECIAL
        if (value := told.get(name, mapped.get(name))) is not None
    }
    _complete(backend, told, special)
    longest = told.get("model_max_length")
    return Tokenizer(
        backend,
        special,
        _chat_template(folder, told),
        bool(told.get("clean_up_tokenization_spaces", False)),
        longest if isinstance(longest, int) and longest < _NO_LIMIT else None,
        str(told.get("truncation_side") or (backend.truncation or {}).get("direction", "right")),
    )


def read_backend(file: Path) -> Backend:
    """The tokenizer of a tokenizer.json. Raises ModelError."""
    try:
        return Backend.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(
            f"{file} cannot be read as a tokenizer: {error}. Give a tokenizer.json written by "
            "transformers' save_pretrained."
        ) from error


def _chat_template(folder: Path, told: Mapping[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    given = told.get("chat_template") or read_object(folder / "chat_template.json").get(
        "chat_template"
    )
    if isinstance(given, list):  # several, by name
        given = {str(each.get("name")): each.get("template") for each in given}
    return _default(given)


def _default(given: object) -> str:
    """The chat template of several, or the only one; "" for none."""
    return str((given.get("default") if isinstance(given, dict) else given) or "")


def _complete(backend: Backend, told: Mapping[str, Any], special: Mapping[str, str]) -> None:
    """Add what tokenizer_config.json says beyond tokenizer.json: tokens, and which stand around a
    text."""
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    listed = told.get("added_tokens_decoder") or {}
    added = {
        str(each["content"]): AddedToken(
            each["content"], **{name: bool(each.get(name)) for name in _FLAGS}
        )
        for _, each in sorted(listed.items(), key=lambda item: int(item[0]))
    }
    for content in {**added, **dict.fromkeys(special.values())}:
        token = added.get(content) or known.get(content) or AddedToken(content, normalized=False)
        token.special = token.special or content in special.values()
        if content not in known or token.special != known[content].special:
            (backend.add_special_tokens if token.special else backend.add_tokens)([token])
    if "add_bos_token" in told or "add_eos_token" in told:
        first, last = (
            [special[name]] if told.get(f"add_{name}") and name in special else []
            for name in ("bos_token", "eos_token")
        )
        backend.post_processor = processors.TemplateProcessing(
            single=[*first, "$A", *last],
            special_tokens=[(each, backend.token_to_id(each)) for each in {*first, *last}],
        )


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
