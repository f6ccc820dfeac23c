"""A tokenizer without its network; torch is not imported for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from relquery.errors import ModelError


def check_tokenizer(given: object) -> PreTrainedTokenizerBase:
    """A tokenizer that a user gives. Raises ModelError if it is something else."""
    if not isinstance(given, PreTrainedTokenizerBase):
        raise ModelError(
            f"tokenizer is {given!r}; it must be a tokenizer of transformers, e.g. "
            "AutoTokenizer.from_pretrained(...). Without it the model's own is used."
        )
    return given


def read_file(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder with tokenizer.json and tokenizer_config.json.

    `AutoTokenizer` reads more kinds of folders, but imports torch.
    """
    loader: Any = PreTrainedTokenizerFast
    return cast(PreTrainedTokenizerBase, loader.from_pretrained(str(folder)))
