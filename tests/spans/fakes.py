"""A backend that answers at once, by a function, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from relquery.backends.base import Backend
from relquery.prompt import Answer, Exchange, Finish, Prompt, Sampling


def read(prompt: Prompt) -> str:
    """A prompt as text; of an exchange, its prompt and how long its answer is, in brackets."""
    parts = []
    for span in prompt:
        if isinstance(span.content, Exchange):
            parts.append(f"[{read(span.content.prompt)}>{len(span.content.output)}]")
        else:
            parts.append(str(span.content))
    return "".join(parts)


class Fake(Backend):
    """calls: (prompts as text, sampling) of each call. prompts: all of them, as asked."""

    name = "fake"

    def __init__(
        self, reply: Callable[[str], Answer | str] = lambda text: text.upper(), tokens: bool = True
    ) -> None:
        self.calls: list[tuple[list[str], Sampling]] = []
        self.prompts: list[Prompt] = []
        self.closed = 0
        self._reply, self._tokens = reply, tokens

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        self.calls.append(([read(prompt) for prompt in prompts], sampling))
        self.prompts += prompts
        return self._answers(prompts)

    def _answers(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, Answer]]:
        try:
            for index, prompt in enumerate(prompts):
                reply = self._reply(read(prompt))
                if isinstance(reply, str):
                    tokens = tuple(range(len(reply))) if self._tokens else None
                    reply = Answer(reply, Finish.STOP, None, 10, 4, len(reply), tokens=tokens)
                yield index, reply
        finally:
            self.closed += 1

    def close(self) -> None:
        pass

    @property
    def asked(self) -> list[str]:
        """All prompts as text, in the order asked."""
        return [prompt for prompts, _ in self.calls for prompt in prompts]
