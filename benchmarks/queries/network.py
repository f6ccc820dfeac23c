"""The random networks that queries run on, with tokenizers that know the words of the prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from relquery.sql.inputs.prompt import SYSTEM

if TYPE_CHECKING:
    from relquery.model.served import ServedModel


def train(
    spec: str, rows: Iterable[Mapping[str, Any]], prompts: Iterable[str], vocabulary: int
) -> ServedModel:
    """A random network, with a tokenizer trained on rows and on what is asked of them.

    Cells alone would leave the words of a question cut into letters.
    """
    from relquery.model.load import load
    from relquery.model.networks.random import train_tokenizer

    texts = [json.dumps(row, default=str, indent=0) for row in rows]
    asked = (SYSTEM, *prompts)
    return load(spec, tokenizer=train_tokenizer([*texts, *asked * (len(texts) // 10)], vocabulary))
