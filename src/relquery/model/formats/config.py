"""The configuration of a model folder: every key is understood, known not to matter, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from relquery.errors import ModelError, UnsupportedNetworkError

T = TypeVar("T")
_MOST = 2**31
"""Whole numbers are below it."""
INCIDENTAL = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_model_name_or_path",
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "auto_map",
        "cache_implementation",
        "do_sample",
        "dtype",
        "embd_pdrop",
        "hidden_dropout",
        "id2label",
        "initializer_range",
        "is_decoder",
        "is_llama_config",
        "keys_to_ignore_at_inference",
        "label2id",
        "model_type",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "pretraining_tp",
        "problem_type",
        "resid_pdrop",
        "return_dict",
        "temperature",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torch_dtype",
        "transformers.js_config",
        "transformers_version",
        "unsloth_fixed",
        "unsloth_version",
        "use_cache",
    }
)
"""Keys that say how a network was trained, saved or run elsewhere."""
COPIED = frozenset(
    {"_model_name_or_path", "_name_or_path", "dtype", "torch_dtype", "transformers_version"}
)
"""Those that differ between copies of one network; of a number's type the weights tell."""
TOKENS = frozenset(
    {"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id"}
)
"""Keys that belong to the tokenizer and the end of answers."""


class ConfigReader(Mapping[str, object]):
    """A configuration. Each key has to be read; `end` refuses a configuration with unread keys.

    name: of the model, for messages. file: what they are from.
    """

    def __init__(self, name: str, given: Mapping[str, object], file: str = "config.json") -> None:
        self.name, self.file = name, file
        self._given = dict(given)
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> object:
        self._read.add(key)
        return self._given[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number. Raises ModelError, as do the others."""
        value = self._of(key, default, lambda each: type(each) is int, "a whole number")
        if not least <= value < _MOST:
            raise self.refused(f"{key} is {value}; it must be at least {least}, and below {_MOST}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number."""
        return float(self._of(key, default, lambda each: type(each) in (int, float), "a number"))

    def flag(self, key: str, default: bool) -> bool:
        """Whether something is so."""
        return self._of(key, default, lambda each: type(each) is bool, "true or false")

    def text(self, key: str, default: str | None = None) -> str:
        """A word."""
        return self._of(key, default, lambda each: type(each) is str, "a text")

    def within(self, key: str) -> ConfigReader | None:
        """Settings inside of these; None if there are none."""
        section = self.get(key)
        if section is None:
            return None
        if not isinstance(section, Mapping):
            raise self.refused(f"{key} is {section!r}; it must be an object")
        return ConfigReader(self.name, section, self.file)

    def expect(self, key: str, *usual: object) -> None:
        """Refuse a key that is there with another value than those that are computed."""
        value = self.get(key, usual[0])
        if value not in usual:
            raise self.refused(f"{key} is {value!r}, and this engine computes {usual[0]!r}")

    def end(self, ignored: Collection[str] = ()) -> None:
        """Refuse keys that have not been read. ignored: those that do not matter here."""
        left = sorted(set(self._given) - self._read - INCIDENTAL - TOKENS - set(ignored))
        if left:
            raise self.refused(f"its {self.file} has a key that is not known: {', '.join(left)}")

    def refused(self, why: str) -> UnsupportedNetworkError:
        """An error about this configuration."""
        remedy = (
            "Install relquery[torch], which computes more families, or run it on a server such as "
            "vLLM."
            if self.file == "config.json"
            else "Use another file of it, or run it on a server such as llama.cpp's."
        )
        return UnsupportedNetworkError(
            f"Model '{self.name}' cannot run in relquery's own runtime: {why}. {remedy}", why
        )

    def _of(self, key: str, default: T | None, fits: Callable[[object], bool], what: str) -> T:
        value = self.get(key)
        if value is None:
            if default is None:
                raise self.refused(f"its {self.file} has no {key}")
            return default
        if not fits(value):
            raise self.refused(f"{key} is {value!r}; it must be {what}")
        return value  # type: ignore[return-value]


def read_settings(folder: Path, name: str) -> ConfigReader:
    """The configuration of a folder. Raises ModelError."""
    file = folder / "config.json"
    if not file.exists():
        raise ModelError(f"Model '{name}' has no config.json in {folder}.")
    return ConfigReader(name, read_object(file))


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none. Raises ModelError."""
    content = read_json(file) if file.is_file() else {}
    if not isinstance(content, dict):
        raise ModelError(f"{file} is not a JSON object. Download it again.")
    return content


def read_json(file: Path) -> Any:
    """What a file says in JSON. Raises ModelError."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}. Download it again.") from error
