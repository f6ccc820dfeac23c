"""The local engine, with answers of a given length whose text a function gives.

A random network never answers 'Yes', and ends its answers anywhere. Here it computes as many tokens
as `max_tokens` says, whatever they are, and another text stands for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.queries.prompts import read
from benchmarks.stock import native
from relquery.backends.base import Answers
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.prompt import Finish, Prompt, Sampling

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

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
