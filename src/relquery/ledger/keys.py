"""The key of an answer in the ledger, made from the model, the sampling and the prompt.

Version 1 of what is hashed: the model's name and the settings as `written`; then for each span its
marks, role, reuse, position and kind, the bytes of its content, and that content. Ledgers are read
for years, so this must not change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum

from relquery.prompt import Answer, Compared, Finish, Prompt, Reuse, Role, Sampling, Span

_AT_ONCE = 4096  # prompts that are in memory at one time
_FIRST_SETTINGS = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "labels")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the answers to some prompts, one per prompt.

    whole: keys of whole answers. decided: keys of answers that were stopped once they could no
    longer equal any of the texts that they are compared with; empty if answers are read. scored:
    whether answers are stored with their scores.
    """

    whole: list[bytes]
    decided: list[bytes]
    scored: bool = False

    @classmethod
    def of(cls, model: str, prompts: Sequence[Prompt], sampling: Sampling) -> Keys:
        """The keys for prompts to a model with this sampling.

        Some prompts are read at a time, each once: a sequence may build them when they are read.
        """
        keys = cls([], [], sampling.scored)
        for start in range(0, len(prompts), _AT_ONCE):
            some = list(prompts[start : start + _AT_ONCE])
            if isinstance(sampling, Compared):
                keys.whole.extend(answer_keys(model, some, sampling.whole))
                keys.decided.extend(answer_keys(model, some, sampling))
            else:
                keys.whole.extend(answer_keys(model, some, sampling))
        return keys

    def part(self, places: Iterable[int]) -> Keys:
        """The keys for some of the prompts."""
        places = list(places)
        decided = [self.decided[at] for at in places] if self.decided else []
        return Keys([self.whole[at] for at in places], decided, self.scored)

    def marked(self, mark: str) -> Keys:
        """Other keys for the same prompts: of answers that are given in a way that they don't tell.

        Keys of different marks are different, and so the answers are kept apart.
        """
        start = hashlib.sha256(mark.encode())
        return Keys(_after(start, self.whole), _after(start, self.decided), self.scored)

    def answers(self, known: Mapping[bytes, Answer]) -> dict[int, Answer]:
        """The known answers, by index of the prompt: whole ones, else those that decide."""
        found = {at: known[key] for at, key in enumerate(self.whole) if key in known}
        for at, key in enumerate(self.decided):
            if key in known and at not in found:
                found[at] = replace(known[key], finish=Finish.DECIDED)
        return found

    def of_prompt(self, index: int) -> tuple[bytes, ...]:
        """The keys under which an answer to a prompt may be."""
        return (self.whole[index], *self.decided[index : index + 1])

    def entry(self, index: int, answer: Answer) -> tuple[bytes, Answer]:
        """The key that an answer is stored under, and what is stored of it."""
        place = (self.decided if answer.finish is Finish.DECIDED else self.whole)[index]
        is_plain = self.scored or answer.scores is None
        return place, answer if is_plain else replace(answer, scores=None)


def _after(start: hashlib._Hash, keys: Iterable[bytes]) -> list[bytes]:
    found = []
    for key in keys:
        digest = start.copy()
        digest.update(key)
        found.append(digest.digest())
    return found


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
    settings = written((model, _settings(sampling)))
    start = hashlib.sha256(settings.encode("utf-8", "surrogatepass"))
    known: dict[int, tuple[Span, bytes]] = {}
    keys = []
    for prompt in prompts:
        parts = []
        for span in prompt:
            # Spans of equal cells are one object, so each is written once; the tuple keeps it
            # alive, since an id is only unique among living objects.
            if (one := known.get(id(span))) is None:
                one = known[id(span)] = (span, _written(span))
            parts.append(one[1])
        digest = start.copy()
        digest.update(b"".join(parts))
        keys.append(digest.digest())
    return keys


def _settings(sampling: Sampling) -> tuple[object, ...]:
    """The settings in the key. Newer ones count only if they are set, so old keys stay valid."""
    first = [getattr(sampling, name) for name in _FIRST_SETTINGS]
    if isinstance(sampling, Compared):
        first.append(sampling.texts)
    later = [
        (one.name, getattr(sampling, one.name))
        for one in fields(sampling)
        if one.name not in (*_FIRST_SETTINGS, "texts")
        and getattr(sampling, one.name) != one.default
    ]
    return (*first, *later)


def written(value: object) -> str:
    """A value as text: literals as Python writes them, of objects what is not as by default.

    So a field that an object gets later changes no key, unless it is set.
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(written, value))}{',' * (len(value) == 1)})"
    if isinstance(value, Enum):
        return str(value)
    if not is_dataclass(value):
        return repr(value)
    given = ((one.name, getattr(value, one.name), one.default) for one in fields(value))
    set_ = ", ".join(f"{name}={written(one)}" for name, one, default in given if one != default)
    return f"{type(value).__name__}({set_})"


def _written(span: Span) -> bytes:
    content = span.content if isinstance(span.content, str) else written(span.content)
    kind = type(span.content).__name__
    data = content.encode("utf-8", "surrogatepass")
    begins = f"{'message ' if span.begins else ''}{'open ' if span.open else ''}"
    begins += "raw " if span.raw else ""
    # Most spans by far are such; reading the values of enums takes longer than all else here.
    is_usual = span.role is Role.USER and span.reuse is Reuse.PREFIX
    names = "user prefix" if is_usual else f"{span.role.value} {span.reuse.value}"
    return f"{begins}{names} {span.position} {kind} {len(data)} ".encode() + data
