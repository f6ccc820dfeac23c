"""A backend that answers by a Python function of the query and the fields in the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relquery.backends.base import Backend, Insight, Limits
from relquery.prompt import Answer, Compared, Finish, Nest, Prompt, Role, Sampling, Span

Fields = Mapping[str, Any]
Function = Callable[[str, Fields], str | Answer]

_QUERY = "Answer the below query:\n"
_DATA = re.compile(r"\n\nGiven the following (?:data|answers for parts of the data):\n")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as the backend saw it."""

    query: str
    fields: dict[str, Any]
    sampling: Sampling
    prompt: Prompt


@dataclass(slots=True)
class FakeBackend(Backend, Insight):
    """Records every request; answers in the order given, or in reverse.

    brief: with no more than decides, where answers are only compared. has_modules: see Limits.
    """

    function: Function
    name: str = "fake"
    reverse: bool = False
    brief: bool = True
    has_modules: bool = False
    asked: list[Asked] = field(default_factory=list)
    closed: bool = False

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        indexes = range(len(prompts))
        for index in reversed(indexes) if self.reverse else indexes:
            request = read_prompt(prompts[index], sampling)
            self.asked.append(request)
            given = self.function(request.query, request.fields)
            if isinstance(given, str):
                given = self._answer(given, prompts[index], sampling)
            yield index, given

    def _answer(self, text: str, prompt: Prompt, sampling: Sampling) -> Answer:
        """The whole of it, or where it is only compared, no more than decides."""
        size, finish = sum(len(text_of(span)) for span in prompt), Finish.STOP
        if self.brief and isinstance(sampling, Compared) and text not in sampling.texts:
            for end in range(1, len(text)):
                if not any(wanted.startswith(text[:end]) for wanted in sampling.texts):
                    text, finish = text[:end], Finish.DECIDED
                    break
        return Answer(text, finish, prompt_tokens=size, output_tokens=len(text))

    def close(self) -> None:
        self.closed = True

    @property
    def limits(self) -> Limits:
        return Limits(has_modules=self.has_modules)

    @property
    def insight(self) -> Insight:
        return self

    @property
    def queries(self) -> list[str]:
        return [request.query for request in self.asked]


def text_of(span: Span) -> str:
    """The text of a span, or of a module."""
    if isinstance(span.content, Nest):
        return "".join(map(text_of, span.content.spans))
    return str(span.content)


def read_prompt(prompt: Prompt, sampling: Sampling) -> Asked:
    """Take a prompt apart again."""
    assert prompt[0].role is Role.SYSTEM
    return Asked(*split_prompt("".join(map(text_of, prompt[1:]))), sampling, prompt)


def split_prompt(text: str) -> tuple[str, dict[str, Any]]:
    """The query and the fields in the text of a prompt."""
    assert text.startswith(_QUERY)
    query, *data = _DATA.split(text.removeprefix(_QUERY), maxsplit=1)
    return query, json.loads(data[0]) if data else {}
