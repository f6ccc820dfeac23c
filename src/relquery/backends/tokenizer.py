"""A tokenizer alone, without its model: to count tokens where nothing is to be answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from relquery.demo.files import model_path
from relquery.errors import ModelError, did_you_mean

Encode = Callable[[Sequence[str]], list[list[int]]]

_FILE = "tokenizer.json"


def load_tokenizer(name: str) -> Encode:
    """A function that gives the token ids of each of a list of texts.

    name: "demo" for the bundled model's tokenizer, a model folder in Hugging Face form, or the
        path of a tokenizer.json.

    As the embedded engine renders text: no special tokens are added, those named in a text are
    ordinary characters, and nothing is cut off or padded.

    Raises ModelError for what is no tokenizer.
    """
    from relquery.model.text.tokenizer import Tokenizer, read_backend

    return Tokenizer(read_backend(_find(name)), {}).encode


def _find(name: str) -> Path:
    path = model_path() if name == "demo" else Path(name)
    if path.is_dir():
        path /= _FILE
        if not path.exists():
            raise ModelError(
                f"The folder {path.parent} has no {_FILE}. Write one with "
                "AutoTokenizer.from_pretrained(...).save_pretrained(folder)."
            )
    elif not path.exists():
        raise ModelError(
            f"The tokenizer {name} does not exist. Give 'demo', a model folder, or the path of a "
            f"{_FILE}." + did_you_mean(name, ["demo"])
        )
    return path
