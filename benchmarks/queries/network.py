"""Random networks that queries run on, and answers of a length whose text a function gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.queries.prompts import read
from benchmarks.stock import native
from relquery.backends.base import Answers
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.prompt import Finish, Prompt, Sampling
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


Recite = Callable[[str, Mapping[str, Any]], str]
"""(prompt of the call, fields of the row) -> the answer's text."""


class Reciting(EmbeddedBackend):
    """See the module. No answer is ended early, whatever it is compared with."""

    def __init__(self, recite: Recite, model: ServedModel, config: EngineConfig) -> None:
        super().__init__(replace(native(model), end=frozenset()), config)
        self._recite = recite

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend.answer."""
        for index, answer in super().answer(prompts, Sampling(max_tokens=sampling.max_tokens)):
            asked = read(prompts[index])
            if asked is None or answer.finish is not Finish.LENGTH:
                yield index, answer
            else:
                text = self._recite(*asked)
                yield index, replace(answer, text=text, finish=Finish.STOP, error=None)
