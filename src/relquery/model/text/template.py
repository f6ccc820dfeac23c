"""The text that a chat template puts around messages, found by filling it with placeholders."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from transformers import PreTrainedTokenizerBase

from relquery.errors import RequestError
from relquery.prompt import Message, Prompt, Role, Span, messages

_SLOT = "\ue000{}\ue001"  # private-use characters, which no chat template contains
_ANY_SLOT = re.compile(_SLOT.format(r"(\d+)"))
_Literals = tuple[str, ...]


class ChatTemplate:
    """The chat template of a tokenizer; without one, messages are paragraphs."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._known: dict[tuple[Role, ...], _Literals | None] = {}

    def around(self, prompt: Prompt) -> tuple[list[Message], _Literals]:
        """The messages of a prompt, and the text before, between and after their contents.

        If the template refuses consecutive messages of one role, they are joined by a line break.
        Spans of no role have nothing around them. What an open message says stands where the
        answer would begin without it. Raises RequestError for a prompt that the template refuses.
        """
        if any(span.open for span in prompt):
            return self._around_open(prompt)
        if any(span.role is Role.NONE for span in prompt):
            return [(Role.NONE, _without_template(prompt))], ("", "")
        said = messages(prompt)
        literals = self._literals(tuple(role for role, _ in said))
        if literals is None:
            said = _joined(said)
            literals = self._literals(tuple(role for role, _ in said))
            assert literals is not None, "neighbours of one role are left"
        return said, literals

    def _around_open(self, prompt: Prompt) -> tuple[list[Message], _Literals]:
        *head, (role, spans) = messages(prompt)
        is_last = spans[-1].open and not any(span.open for span in prompt[:-1])
        if role is not Role.ASSISTANT or not is_last:
            raise RequestError(
                "An open span does not end the prompt, or is not the assistant's. Only the last "
                "span of a prompt may be open, with the role ASSISTANT."
            )
        said, literals = self.around(tuple(span for _, spans in head for span in spans))
        return [*said, (role, spans)], (*literals, "")

    def _literals(self, roles: tuple[Role, ...]) -> _Literals | None:
        """The text around messages; None if the template refuses neighbours of one role."""
        if roles not in self._known:
            try:
                self._known[roles] = tuple(self._apply(roles))
            except RequestError:
                if not any(role is other for role, other in pairwise(roles)):
                    raise
                self._known[roles] = None
        return self._known[roles]

    def _apply(self, roles: tuple[Role, ...]) -> list[str]:
        slots = [_SLOT.format(turn) for turn in range(len(roles))]
        if not self._tokenizer.chat_template:
            text = "\n\n".join(slots) + "\nAnswer:"
        else:
            chat = [
                {"role": role.value, "content": slot}
                for role, slot in zip(roles, slots, strict=True)
            ]
            text = self._filled_in_some_way(chat)
        literals, order = _ANY_SLOT.split(text)[::2], _ANY_SLOT.findall(text)
        if order != [str(turn) for turn in range(len(roles))]:
            raise RequestError(
                "The model's chat template drops, repeats or moves a message. Use another template."
            )
        return literals

    def _filled_in_some_way(self, chat: list[dict[str, str]]) -> str:
        try:
            return self._filled(chat)
        except RequestError:
            if [message["role"] for message in chat[:2]] != ["system", "user"]:
                raise
            # Some templates have no system role; its text then begins the user's turn.
            joined = f"{chat[0]['content']}\n\n{chat[1]['content']}"
            return self._filled([{"role": "user", "content": joined}, *chat[2:]])

    def _filled(self, chat: list[dict[str, str]]) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    chat, tokenize=False, add_generation_prompt=True
                )
            )
        except Exception as error:  # templates may raise anything
            raise RequestError(f"The model's chat template refuses the prompt: {error}") from error


def _without_template(prompt: Prompt) -> list[Span]:
    if any(span.role is not Role.NONE for span in prompt):
        raise RequestError("A prompt must not have spans with a role beside spans without one.")
    return list(prompt)


def _joined(said: Iterable[Message]) -> list[Message]:
    """Messages of one role in a row as one, a line break between them."""
    joined: list[Message] = []
    for role, spans in said:
        if not joined or joined[-1][0] is not role:
            joined.append((role, spans))
            continue
        before = joined[-1][1]
        ends_line = str(before[-1].content).endswith("\n")
        before += spans if ends_line else [Span("\n", role), *spans]
    return joined
