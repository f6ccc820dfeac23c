"""The text that a chat template puts around messages.

It is found by filling the template with placeholders. A template may read what messages say, as
those that trim them or that leave out earlier reasoning. So it is filled with the messages, too;
where that shows another text around them, it is filled with the messages in hidden characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, zip_longest

from jinja2 import Environment

from relquery.errors import RequestError
from relquery.model.text.tokenizer import Tokenizer
from relquery.prompt import Message, Prompt, Reuse, Role, Span, messages

SLOT = "\ue000{}\ue001"  # private-use characters, which no chat template contains
ANY_SLOT = re.compile(SLOT.format(r"(\d+)"))
_HIDDEN = 0x100000  # where the last private plane begins: text that is no template's own
_HIDDEN_CHARACTERS = re.compile(f"([{chr(_HIDDEN)}-{chr(_HIDDEN + 0xFFFF)}]+)")
SPARE = range(_HIDDEN + 0xD800, _HIDDEN + 0xE000)
"""Of that plane, where halves of surrogate pairs would go: for texts that have its characters."""
_LONGEST = 100  # characters of a text that a template may look for
_MOST = 200
_CHANGES = (
    "The model's chat template drops, repeats or changes the text of a message. Use another "
    "template."
)


@dataclass(frozen=True, slots=True)
class _Around:
    """What a template puts around messages of some roles: before, between and after them.

    order: in which it says them.
    """

    literals: tuple[str, ...]
    order: tuple[int, ...]


class ChatTemplate:
    """The chat template of a tokenizer; without one, messages are paragraphs."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[tuple[Role, ...], _Around | None] = {}

    def around(self, prompt: Prompt) -> tuple[list[Message], tuple[str, ...]]:
        """The messages of a prompt, and the text before, between and after their contents.

        If the template refuses consecutive messages of one role, they are joined by a line break.
        Spans of no role have nothing around them. What an open message says stands where the
        answer would begin without it. Raises RequestError for a prompt that the template refuses.
        """
        if any(span.open for span in prompt):
            return around_open(prompt, self.around)
        if any(span.role is Role.NONE for span in prompt):
            return [(Role.NONE, _without_template(prompt))], ("", "")
        said = messages(prompt)
        around = self._around(_roles_of(said))
        if around is None:
            said = _joined(said)
            around = self._around(_roles_of(said))
            assert around is not None, "neighbours of one role are left"
        if self._tokenizer.chat_template:
            texts = [_text_of(spans) for _, spans in said]
            in_order = [texts[turn] for turn in around.order]
            told = chain.from_iterable(zip_longest(around.literals, in_order, fillvalue=""))
            if self._filled(_roles_of(said), texts) != "".join(told):
                return self._around_texts(said)
        return [said[turn] for turn in around.order], around.literals

    def _around(self, roles: tuple[Role, ...]) -> _Around | None:
        """What is around messages; None if the template refuses neighbours of one role."""
        if roles not in self._known:
            try:
                self._known[roles] = self._around_slots(roles)
            except RequestError:
                if not any(role is other for role, other in pairwise(roles)):
                    raise
                self._known[roles] = None
        return self._known[roles]

    def _around_slots(self, roles: tuple[Role, ...]) -> _Around:
        text = self._filled(roles, _slots(len(roles)))
        literals, order = (
            ANY_SLOT.split(text)[::2],
            [int(turn) for turn in ANY_SLOT.findall(text)],
        )
        if sorted(order) != list(range(len(roles))):
            raise RequestError(_CHANGES)
        return _Around(tuple(literals), tuple(order))

    def _around_texts(self, said: Sequence[Message]) -> tuple[list[Message], tuple[str, ...]]:
        """As `around`, of a template that reads what is said.

        The template is filled with the texts, their characters moved to a private plane. So what is
        the prompt's can be told from what is the template's. Words that the template looks for stay
        as they are. Spans that are not text are placeholders. Where a text ends that is kept in a
        cache is one, too, unless the template would then say something else, as one that trims.
        """
        odd = sorted({ord(each) for _, of_one in said for each in _odd(of_one)})
        if len(odd) > len(SPARE):
            raise RequestError(f"A prompt has {len(odd):,} different private-use characters.")
        spare = dict(zip(odd, SPARE, strict=False))
        parts = [(role, list(_parts(of_one, spare))) for role, of_one in said]
        bare = [(role, [part for part in some if not _is_end(part)]) for role, some in parts]
        plain = self._filled(_roles_of(said), ["".join(map(_shown, some)) for _, some in bare])
        for each in (parts, bare):
            apart = [part for _, some in each for part in some if isinstance(part, Span)]
            texts, whole = list[str](), list[str]()
            numbers = iter(range(len(apart)))
            for _, some in each:
                hidden = [_hidden(part, self._words, numbers) for part in some]
                texts.append("".join(hidden))
                whole += [text for text in hidden if _HIDDEN_CHARACTERS.search(text)]
            said_hidden = self._filled(_roles_of(said), texts)
            pieces = ANY_SLOT.split(said_hidden)
            found = list(map(int, pieces[1::2]))
            pieces[1::2] = [_shown(apart[slot]) for slot in found if slot < len(apart)]
            told = "".join(pieces)
            if sorted(found) == list(range(len(apart))) and unhidden(told) == plain:
                own = dict(zip(SPARE, odd, strict=False))
                return taken_apart(said_hidden, apart, whole, own)
        raise RequestError(_CHANGES)

    @cached_property
    def _words(self) -> re.Pattern[str]:
        """Matches texts that the template may look for. Special tokens are never among them: a text
        that names one stays a text."""
        special = self._tokenizer.special_ids
        words = _words_in(self._tokenizer.chat_template)
        plain = [word for word in words if not any(each in word for each in special)]
        longest = sorted(map(re.escape, plain), key=len, reverse=True)
        return re.compile(f"({'|'.join(longest) or '(?!)'})")

    def _filled(self, roles: Sequence[Role], texts: Sequence[str]) -> str:
        """The text of a chat."""
        if not self._tokenizer.chat_template:
            return "\n\n".join(texts) + "\nAnswer:"
        chat = [
            {"role": role.value, "content": text} for role, text in zip(roles, texts, strict=True)
        ]
        try:
            return self._applied(chat)
        except RequestError:
            if [message["role"] for message in chat[:2]] != ["system", "user"]:
                raise
            # Some templates have no system role; its text then begins the user's turn.
            joined = f"{chat[0]['content']}\n\n{chat[1]['content']}"
            return self._applied([{"role": "user", "content": joined}, *chat[2:]])

    def _applied(self, chat: list[dict[str, str]]) -> str:
        try:
            return self._tokenizer.render(chat)
        except Exception as error:  # templates may raise anything
            raise RequestError(f"The model's chat template refuses the prompt: {error}") from error


def around_open(
    prompt: Prompt, around: Callable[[Prompt], tuple[list[Message], tuple[str, ...]]]
) -> tuple[list[Message], tuple[str, ...]]:
    """What is around the messages of a prompt whose last one the answer continues."""
    *head, (role, spans) = messages(prompt)
    is_last = spans[-1].open and not any(span.open for span in prompt[:-1])
    if role is not Role.ASSISTANT or not is_last:
        raise RequestError(
            "An open span does not end the prompt, or is not the assistant's. Only the last "
            "span of a prompt may be open, with the role ASSISTANT."
        )
    said, literals = around(tuple(span for _, spans in head for span in spans))
    return [*said, (role, spans)], (*literals, "")


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


def _roles_of(said: Iterable[Message]) -> tuple[Role, ...]:
    return tuple(role for role, _ in said)


def _slots(count: int) -> list[str]:
    return [SLOT.format(number) for number in range(count)]


def _words_in(source: str) -> list[str]:
    """Texts that a template may look for; those that it joins are one."""
    words, joined, before = list[str](), "", ""
    for _, kind, value in Environment().lex(source):
        if kind == "string":
            # As jinja reads it, which lets it hold a line break.
            text = value[1:-1].encode("ascii", "backslashreplace").decode("unicode-escape")
            joined = joined + text if before in ("~", "+") else text
            words += [text, joined]
        if kind != "whitespace":
            before = value
    return [word for word in dict.fromkeys(words) if word.strip() and len(word) <= _LONGEST][:_MOST]


def _is_text(span: Span) -> bool:
    return isinstance(span.content, str) and span.reuse is Reuse.PREFIX


def _text_of(spans: Iterable[Span]) -> str:
    """The text of a message; a character for what is none."""
    return "".join(str(span.content) if _is_text(span) else SLOT for span in spans)


def _odd(spans: Iterable[Span]) -> Iterator[str]:
    """Characters of texts that are in the plane where texts are hidden."""
    for span in spans:
        if _is_text(span):
            yield from odd_characters(str(span.content))


def odd_characters(text: str) -> str:
    """Those of a text that are in the plane where texts are hidden."""
    return "".join(_HIDDEN_CHARACTERS.findall(text))


def _parts(spans: Iterable[Span], spare: Mapping[int, int]) -> Iterator[str | Span]:
    """Texts, and spans of all that is more than text."""
    for span in spans:
        if not _is_text(span):
            yield span
            continue
        if span.position is not None:
            yield replace(span, content="", keep=0)
        yield str(span.content).translate(spare)
        if span.keep > 0:
            yield replace(span, content="", position=None)


def _is_end(part: str | Span) -> bool:
    """Whether it says only that the text before it is kept."""
    return isinstance(part, Span) and part.keep > 0 and _is_text(part) and not part.content


def _shown(part: str | Span) -> str:
    """The text of a part; a character for what is none, and nothing for an end."""
    if isinstance(part, str):
        return part
    return "" if _is_end(part) else SLOT


def _hidden(part: str | Span, words: re.Pattern[str], numbers: Iterator[int]) -> str:
    """A text in the private plane, but for blanks and these words; a placeholder for a span."""
    if isinstance(part, Span):
        return SLOT.format(next(numbers))
    pieces = words.split(part)
    pieces[::2] = [piece.translate(_HIDING) for piece in pieces[::2]]
    return "".join(pieces)


def taken_apart(
    text: str, apart: Sequence[Span], whole: Iterable[str], own: Mapping[int, int]
) -> tuple[list[Message], tuple[str, ...]]:
    """What is said in the text of a chat, and what is around it. whole: texts that are the
    prompt's, with the words in them. own: the characters that stand for others."""
    longest = sorted(map(re.escape, set(whole)), key=len, reverse=True)
    of_prompt = re.compile("|".join([ANY_SLOT.pattern, *longest, _HIDDEN_CHARACTERS.pattern]))
    new, literals, end = list[Message](), list[str](), 0
    for match in of_prompt.finditer(text):
        literals.append(text[end : match.start()])
        span = Span(unhidden(match[0]).translate(own)) if match[1] is None else apart[int(match[1])]
        new.append((span.role, [span]))
        end = match.end()
    return new, (*literals, text[end:])


def hide(character: str) -> str:
    """A character in the private plane, where no template looks for it."""
    return character.translate(_HIDING)


def unhidden(text: str) -> str:
    """A text with the characters that were hidden as they were."""
    return text.translate(_SHOWING)


class _Hiding(dict[int, int]):
    def __missing__(self, code: int) -> int:
        stays = code > 0xFFFF or chr(code).isspace()
        self[code] = code if stays else code + _HIDDEN
        return self[code]


class _Showing(dict[int, int]):
    def __missing__(self, code: int) -> int:
        return code - _HIDDEN if code >= _HIDDEN and code not in SPARE else code


_HIDING, _SHOWING = _Hiding(), _Showing()
