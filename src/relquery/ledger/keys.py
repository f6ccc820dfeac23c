"""The key of an answer in the ledger, made from the model, the sampling and the prompt.

What is hashed is written down in docs/ledger.md, "The key of an answer". Ledgers are read for
years, so it must not change without a new `FORMAT`. `older_keys.py` has the keys before this one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

from relquery.ledger.older_keys import older_keys
from relquery.prompt import (
    Answer,
    Blank,
    Compared,
    Exchange,
    Finish,
    Nest,
    Prompt,
    Reuse,
    Role,
    Sampling,
    Span,
)
from relquery.tools import ToolCall, ToolResult, Tools

OLDER, FORMAT = 1, 2
"""Formats of the keys in a ledger: as in `older_keys.py`, and as here."""
_AT_ONCE = 4096  # prompts that are in memory at one time
_FIRST_SETTINGS = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "labels")
_KINDS = {
    tuple: "tokens",
    Exchange: "exchange",
    Nest: "nest",
    Blank: "blank",
    Tools: "tools",
    ToolCall: "call",
    ToolResult: "result",
}

Make = Callable[[str, Iterable[Prompt], Sampling], list[bytes]]
Get = Callable[[Sequence[bytes]], Mapping[bytes, Answer]]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the answers to some prompts, one per prompt."""

    whole: list[bytes]
    """Of whole answers."""
    decided: list[bytes]
    """Of answers that were stopped once they could no longer equal any of the texts that they are
    compared with; empty if answers are read."""
    scored: bool = False
    """Whether answers are stored with their scores."""
    older: tuple[Keys, ...] = ()
    """Under which earlier versions may have stored the same answers."""

    @classmethod
    def of(
        cls, model: str, prompts: Sequence[Prompt], sampling: Sampling, older: Sequence[str] = ()
    ) -> Keys:
        """The keys for prompts to a model with this sampling.

        older: names of the model under which a ledger may have answers from before format 2.
        Some prompts are read at a time, each once: a sequence may build them when they are read.
        """
        keys = cls([], [], sampling.scored, tuple(cls([], [], sampling.scored) for _ in older))
        for start in range(0, len(prompts), _AT_ONCE):
            some = list(prompts[start : start + _AT_ONCE])
            keys._add(answer_keys, model, some, sampling)
            for each, name in zip(keys.older, older, strict=True):
                each._add(older_keys, name, some, sampling)
        return keys

    def _add(self, make: Make, model: str, prompts: list[Prompt], sampling: Sampling) -> None:
        if isinstance(sampling, Compared):
            self.whole.extend(make(model, prompts, sampling.whole))
            self.decided.extend(make(model, prompts, sampling))
        else:
            self.whole.extend(make(model, prompts, sampling))

    def part(self, places: Iterable[int]) -> Keys:
        """The keys for some of the prompts."""
        places = list(places)
        decided = [self.decided[place] for place in places] if self.decided else []
        older = tuple(each.part(places) for each in self.older)
        return Keys([self.whole[place] for place in places], decided, self.scored, older)

    def marked(self, mark: str) -> Keys:
        """Other keys for the same prompts: of answers that are given in a way that they don't tell.

        Keys of different marks are different, and so the answers are kept apart.
        """
        start = hashlib.sha256(mark.encode())
        older = tuple(each.marked(mark) for each in self.older)
        return Keys(_after(start, self.whole), _after(start, self.decided), self.scored, older)

    def find(self, get: Get) -> dict[int, Answer]:
        """The known answers, by index of the prompt: whole ones, else those that decide.

        get: the answers under some keys, and maybe others. Older keys are looked up for prompts
        without an answer alone.
        """
        answers = self._answers(get([*self.whole, *self.decided]))
        for older in self.older:
            missing = [index for index in range(len(self.whole)) if index not in answers]
            if missing:
                some = older.part(missing).find(get)
                answers |= {missing[place]: answer for place, answer in some.items()}
        return answers

    def _answers(self, known: Mapping[bytes, Answer]) -> dict[int, Answer]:
        answers = {index: known[key] for index, key in enumerate(self.whole) if key in known}
        for index, key in enumerate(self.decided):
            if key in known and index not in answers:
                answers[index] = replace(known[key], finish=Finish.DECIDED)
        return answers

    def of_prompt(self, index: int) -> tuple[bytes, ...]:
        """The keys under which an answer to a prompt may be."""
        older = (key for each in self.older for key in each.of_prompt(index))
        return (self.whole[index], *self.decided[index : index + 1], *older)

    def entry(self, index: int, answer: Answer) -> tuple[bytes, Answer]:
        """The key that an answer is stored under, and what is stored of it."""
        place = (self.decided if answer.finish is Finish.DECIDED else self.whole)[index]
        is_plain = self.scored or answer.scores is None
        return place, answer if is_plain else replace(answer, scores=None)


def _after(start: hashlib._Hash, keys: Iterable[bytes]) -> list[bytes]:
    derived = []
    for key in keys:
        digest = start.copy()
        digest.update(key)
        derived.append(digest.digest())
    return derived


def has_one_answer(sampling: Sampling) -> bool:
    """Whether an answer can be kept: asking again would give the same, and nothing but its text and
    its scores is asked for. A ledger keeps no log-probabilities of tokens."""
    is_same = sampling.temperature == 0 or sampling.seed is not None
    return is_same and sampling.logprobs is None and sampling.prompt_logprobs is None


def kept_text(answer: Answer) -> str | None:
    """The text of an answer that is kept: it is whole, or decides a comparison. None for others."""
    is_whole = answer.finish in (Finish.STOP, Finish.DECIDED)
    return answer.text if is_whole and answer.error is None else None


def answer_keys(model: str, prompts: Iterable[Prompt], sampling: Sampling) -> list[bytes]:
    """One key per prompt: a hash of the model, the sampling and every span."""
    start = hashlib.sha256(_head(model, sampling))
    known: dict[int, tuple[Span, bytes]] = {}
    keys = []
    for prompt in prompts:
        parts = []
        for span in prompt:
            # Spans of equal cells are one object, so each is written once; the tuple keeps it
            # alive, since an id is only unique among living objects.
            if (written := known.get(id(span))) is None:
                written = known[id(span)] = (span, _written(span))
            parts.append(written[1])
        digest = start.copy()
        digest.update(b"".join(parts))
        keys.append(digest.digest())
    return keys


def _head(model: str, sampling: Sampling) -> bytes:
    """What the keys of a call have in common: the format, the model, and the settings."""
    return (
        f"relquery {FORMAT}\n".encode() + _json(model) + b"\n" + settings_as_json(sampling) + b"\n"
    )


def settings_as_json(sampling: Sampling) -> bytes:
    """The settings that are part of a key: the first ones always, later ones only if they are set,
    so that a setting which comes later changes no key."""
    always = (*_FIRST_SETTINGS, "texts")
    return _json(
        {
            setting.name: value
            for setting in fields(sampling)
            if (value := getattr(sampling, setting.name)) != setting.default
            or setting.name in always
        }
    )


def _json(value: object) -> bytes:
    """A value as JSON in ASCII: names sorted, no blanks, and no fraction of whole numbers."""
    plain = _plain(value)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _plain(value: object) -> object:
    """A value of JSON: of objects what is not as by default, whole numbers as integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if is_dataclass(value):
        given = (
            (setting.name, getattr(value, setting.name), setting.default)
            for setting in fields(value)
        )
        return {name: _plain(item) for name, item, default in given if item != default}
    return value


def _written(span: Span) -> bytes:
    """A line with the kind of the content, role, reuse, marks and length; then the content."""
    if isinstance(span.content, str):
        kind, data = "text", span.content.encode("utf-8", "surrogatepass")
    else:
        kind, data = _KINDS[type(span.content)], _content(span.content)
    # Most spans by far are such; reading the values of enums takes longer than all else here.
    is_usual = span.role is Role.USER and span.reuse is Reuse.PREFIX
    names = "user prefix" if is_usual else f"{span.role.value} {span.reuse.value}"
    marks = " begins" if span.begins else ""
    if span.open:
        marks += " open"
    if span.raw:
        marks += " raw"
    if span.position is not None:
        marks += f" at {span.position}"
    return f"{kind} {names}{marks} {len(data)}\n".encode() + data


def _content(content: object) -> bytes:
    """Content other than text. Spans in it are written as those of a prompt."""
    match content:
        case Nest(spans):
            return b"".join(map(_written, spans))
        case Exchange(prompt, output):
            return _json(output) + b"\n" + b"".join(map(_written, prompt))
        case Blank(tokens):
            return _json(tokens)
        case _:
            return _json(content)
