"""Prompts to token ids: chat template, special tokens, and each distinct piece tokenised once."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
from tokenizers.decoders import DecodeStream

from relquery.arrays import TokenIds
from relquery.engine.requests.pieces import At, Chain, Keep, Part, Placeholder
from relquery.model.text.template import ChatTemplate
from relquery.model.text.tokenizer import Tokenizer
from relquery.prompt import Blank, Exchange, Nest, Prompt, Reuse, Role, Span
from relquery.tools import CallForm

_KEPT_PIECES = 200_000
_KEPT_CHARACTERS = 32_000_000
_KEPT_OWNERS = 100
_SLACK = 4
"""A normalizer may make text shorter before it is cut into tokens, but hardly by more."""
_KEPT_SPANS = 2_000
_Run: TypeAlias = "int | Span | At | Keep | list[str] | _Marked | _Nested"
"""A special token, a separate span, where the next run begins, what is kept, text cut into pieces,
with what is kept in its midst or without, or a nest."""
_AFTER_LINE = re.compile(r"\S\n\Z")
_LONG = 1_000
"""Characters after which text is cut between two words, so that what texts share is tokenised once
even where it is only the beginning of a message."""
_BEFORE_WORD = re.compile(r"[a-z](?= [a-z])")


class _Nested(NamedTuple):
    """A span with a nest, and the nest's runs; or its chain, if it is known."""

    span: Span
    runs: tuple[_Run, ...]
    known: Chain | None = None


class _Mark(NamedTuple):
    """A Keep in a text cut into pieces: the number of the piece, and its text before the Keep."""

    number: int
    before: str
    keep: Keep


class _Marked(NamedTuple):
    """Text cut into pieces, and how long its beginnings are kept."""

    pieces: list[str]
    marks: list[_Mark]


class _Known(dict[str, TokenIds]):
    """Pieces of text that were tokenised. characters: of all of them."""

    characters = 0

    def make_room(self, count: int) -> None:
        """Forget all if there are too many with so many more."""
        if len(self) + count > _KEPT_PIECES or self.characters > _KEPT_CHARACTERS:
            self.clear()
            self.characters = 0


class Renderer:
    """A renderer of prompts for one tokenizer.

    Text is cut after a newline between two non-blank characters, and long text between two words,
    where the tokenizer never merges; each distinct piece is tokenised once. Special tokens count
    only in the template: in the prompt's own text they are ordinary characters.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = tokenizer.special_ids
        names = sorted(self._special, key=len, reverse=True)
        self._split_special = re.compile(f"({'|'.join(map(re.escape, names))})") if names else None
        self._start = _start_tokens(tokenizer)
        self._template = ChatTemplate(tokenizer)
        stands_in = (*map(tokenizer.id_of, ("unk_token", "pad_token", "eos_token")), 0)
        self._unknown: int = next(token for token in stands_in if token is not None)
        self._known: dict[str, _Known] = {}
        self._pieces: _Known = _Known()
        self._spans: OrderedDict[int, tuple[Span, Chain]] = OrderedDict()
        self.cuts = self._may_cut()
        self.cuts_words = self._may_cut_words()

    def render(self, prompts: Sequence[Prompt]) -> list[Chain]:
        """Token ids of each prompt, with the turn of the assistant opened.

        Independent spans are chains in it, tokenised separately, as is what follows a given
        position; equal exchanges are one object.
        If the template refuses consecutive messages of one role, they are joined by a line break.

        Raises RequestError for a prompt that the template refuses or that is not text.
        """
        inner = {exchange for prompt in prompts for exchange in _exchanges(prompt)}
        exchanges = {exchange: self._exchange(exchange) for exchange in inner}
        runs = [list(self._runs(prompt)) for prompt in prompts]
        self._tokenise({text for prompt in runs for text in _texts(prompt)})
        return [self._join(prompt, exchanges) for prompt in runs]

    def share_with(self, owner: str | None) -> None:
        """Whose earlier pieces of text are not tokenised again; None for nobody's.

        How long rendering takes then tells nothing of what others have sent.
        """
        if owner is None:
            self._pieces = _Known()
            return
        if owner not in self._known and len(self._known) >= _KEPT_OWNERS:
            self._known.clear()
        self._pieces = self._known.setdefault(owner, _Known())

    def knows(self, span: Span) -> bool:
        """Whether this very span was rendered lately, so that its chain is known."""
        return id(span) in self._spans

    @cached_property
    def longest(self) -> int:
        """Characters of the longest token, and some more: a text of n characters has at least
        n / longest tokens."""
        return _SLACK * max(map(len, self._tokenizer.vocabulary), default=1)

    @property
    def call_form(self) -> CallForm:
        """How the model writes calls of tools."""
        return self._template.form

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of text that continues a prompt, such as a label."""
        return tuple(self._tokenizer.encode([text])[0])

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of an answer, without special tokens."""
        return self._tokenizer.decode(tokens)

    def spelling(self) -> Callable[[list[int]], str] | None:
        """A function that gives the text of one answer's tokens as they come; what is half a
        character comes with later ones. None for a tokenizer that changes earlier text."""
        if self._tokenizer.cleans_up:
            return None
        stream, held = DecodeStream(skip_special_tokens=True), list[int]()

        def spell(tokens: list[int]) -> str:
            spelt = ""
            for token in tokens:
                held.append(token)
                if not self._is_in_run(token):
                    spelt += stream.step(self._tokenizer.backend, held) or ""
                    held.clear()
            return spelt

        return spell

    def tail(self, tokens: Sequence[int], count: int) -> str:
        """The text of an answer's last tokens, from the beginning of a run of bytes on."""
        begin = max(0, len(tokens) - count)
        while begin and self._is_in_run(tokens[begin]):
            begin -= 1
        return self.decode(tokens[begin:])

    def _is_in_run(self, token: int) -> bool:
        """Whether a token may be in the midst of a run of tokens that are single bytes.

        Such a run is decoded as a whole: a single invalid byte turns all of its characters into
        U+FFFD, even those before it. So no text of a run is final until the run ends, which special
        tokens, and ids without a word, do not do.
        """
        return bool(self._bytes) and (token in self._bytes or token not in self._words)

    @cached_property
    def _bytes(self) -> frozenset[int]:
        words = self._tokenizer.vocabulary.items()
        return frozenset(token for word, token in words if _BYTE.fullmatch(word))

    @cached_property
    def _words(self) -> frozenset[int]:
        """Tokens that are shown."""
        shown = frozenset(self._tokenizer.vocabulary.values())
        return shown - frozenset(self._special.values())

    def _join(self, runs: Iterable[_Run], exchanges: Mapping[Exchange, Chain]) -> Chain:
        parts: list[Part] = []
        for run in runs:
            match run:
                case int():
                    parts.append(np.array([run], dtype=np.int32))
                case At() | Keep():
                    parts.append(run)
                case _Marked():
                    parts += self._marked(run)
                case Span(content=str(text), keep=keep):
                    parts.append(Chain((self._pieces[text],), keep))
                case Span(content=Exchange() as exchange):
                    parts.append(exchanges[exchange])
                case Span(content=tuple(ids), reuse=reuse, keep=keep):
                    tokens = np.array(ids, dtype=np.int32)
                    parts.append(tokens if reuse is Reuse.PREFIX else Chain((tokens,), keep))
                case Span(content=Blank(tokens)):
                    parts.append(Placeholder(self._blank(tokens)))
                case _Nested():
                    parts.append(run.known or self._nested(run, exchanges))
                case list():
                    parts += [self._pieces[piece] for piece in run]
        return Chain(tuple(parts))

    def _nested(self, nested: _Nested, exchanges: Mapping[Exchange, Chain]) -> Chain:
        """The chain of a nest. That of a span which is to be kept is made once: the keys of its
        blocks are kept with it."""
        span, chain = nested.span, self._join(nested.runs, exchanges)
        if not span.keep:
            return chain
        chain = replace(chain, keep=span.keep, names=[])
        self._spans[id(span)] = span, chain  # the span is held, so its id stays its own
        if len(self._spans) > _KEPT_SPANS:
            self._spans.popitem(last=False)
        return chain

    def _blank(self, tokens: tuple[int, ...] | int) -> TokenIds:
        ids = (self._unknown,) * tokens if isinstance(tokens, int) else tokens
        return np.array(ids, dtype=np.int32)

    def _exchange(self, exchange: Exchange) -> Chain:
        """An inner generation as it is in the cache: its prompt and its answer."""
        (prompt,) = self.render([exchange.prompt])
        return Chain((*prompt.parts, np.array(exchange.output, dtype=np.int32)))

    def _tokenise(self, pieces: set[str]) -> None:
        self._pieces.make_room(len(pieces))
        new = [piece for piece in pieces if piece not in self._pieces]
        self._pieces.characters += sum(map(len, new))
        if new:
            encoded = self._tokenizer.encode(new)
            arrays = (np.array(ids, dtype=np.int32) for ids in encoded)
            self._pieces.update(zip(new, arrays, strict=True))

    def _runs(self, prompt: Prompt) -> Iterator[_Run]:
        """Special token ids, separate spans, and runs of ordinary text cut into pieces."""
        if len(prompt) == 1 and prompt[0].raw and isinstance(prompt[0].content, str):
            yield from self._start
            yield from self._grouped(self._literal(prompt[0].content))
            return
        is_plain = any(span.role is Role.NONE for span in prompt)
        yield from () if is_plain or self._tokenizer.chat_template else self._start
        yield from self._grouped(self._parts(prompt))

    def _marked(self, text: _Marked) -> Iterator[Part]:
        """The tokens of a text, as they are without what is kept. A token that is only in part
        before a Keep comes after it."""
        marks = iter(text.marks)
        mark = next(marks, None)
        for number, piece in enumerate(text.pieces):
            tokens, done = self._pieces[piece], 0
            while mark is not None and mark.number == number:
                before = max(done, _common(tokens, self._pieces[mark.before]))
                yield from (tokens[done:before], mark.keep)
                done, mark = before, next(marks, None)
            yield tokens[done:]

    def _grouped(self, parts: Iterable[str | int | Span | At | Keep]) -> Iterator[_Run]:
        text: list[str | Keep] = []
        for part in parts:
            if isinstance(part, str | Keep):
                text.append(part)
                continue
            yield from self._cut_marked(text)
            text = []
            if isinstance(part, Span) and isinstance(part.content, Nest):
                yield self._nest(part, part.content.spans)
            else:
                yield part
        yield from self._cut_marked(text)

    def _nest(self, span: Span, inside: Prompt) -> _Nested:
        if id(span) in self._spans:
            self._spans.move_to_end(id(span))
            return _Nested(span, (), self._spans[id(span)][1])
        return _Nested(span, tuple(self._grouped(_texts_and_spans(inside))))

    def _cut_marked(self, parts: list[str | Keep]) -> Iterator[_Run]:
        """Text with what is kept in its midst, cut as if that were not there."""
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            yield from [self._cut(texts)] if texts else []
            return
        pieces = self._cut(texts or [""])
        ends, place, marks = list(accumulate(map(len, pieces))), 0, []
        for part in parts:
            if isinstance(part, str):
                place += len(part)
                continue
            number = bisect_left(ends, place)
            begin = ends[number] - len(pieces[number])
            marks.append(_Mark(number, pieces[number][: place - begin], part))
        yield _Marked(pieces, marks)

    def _cut(self, texts: list[str]) -> list[str]:
        """Join texts wherever the tokenizer might merge across their boundary."""
        if not self.cuts:
            pieces = ["".join(texts)]
        else:
            pieces = [texts[0]]
            for text in filter(None, texts[1:]):
                if _AFTER_LINE.search(pieces[-1]) and not text[0].isspace():
                    pieces.append(text)
                else:
                    pieces[-1] += text
        return [part for each in pieces for part in _shorter(each)] if self.cuts_words else pieces

    def _parts(self, prompt: Prompt) -> Iterator[str | int | Span | At | Keep]:
        """The template's text and special tokens around the spans' text, and separate spans."""
        said, literals = self._template.around(prompt)
        for literal, (_, spans) in zip(literals, said, strict=False):
            yield from self._literal(literal)
            yield from _texts_and_spans(spans)
        yield from self._literal(literals[-1])

    def _literal(self, text: str) -> Iterator[str | int]:
        for part in self._split_special.split(text) if self._split_special else [text]:
            if part:
                yield self._special.get(part, part)

    def _may_cut(self) -> bool:
        """Whether cutting after a newline gives the same tokens as tokenising jointly."""
        left, right = ['a"\n', "x,\n", "1\n", "{\n", ")\n", "é\n"], ['"b', "{", "}", "A", "7", "ü"]
        joint = self._tokenizer.encode([a + b for a in left for b in right])
        apart = [[*self.encode(a), *self.encode(b)] for a in left for b in right]
        return joint == apart and not self._merges_newline()

    def _may_cut_words(self) -> bool:
        """Whether cutting before a blank between two words gives the same tokens."""
        left, right = ["a", "the word", "1 x", "\nit", " so"], [" b", " the word", " s, t", " a\n"]
        joint = self._tokenizer.encode([a + b for a in left for b in right])
        apart = [[*self.encode(a), *self.encode(b)] for a in left for b in right]
        return joint == apart and not self._has_token(r"[a-z][ Ġ▁]")

    def _merges_newline(self) -> bool:
        """Whether some token contains a newline followed by other text."""
        return self._has_token(r"(\n|Ċ|<0x0A>)[^\s\0\nĊĉčĠ]")

    def _has_token(self, pattern: str) -> bool:
        """Whether a pattern is found in some token that is not special."""
        tokens = self._tokenizer.vocabulary.keys() - self._special.keys()
        return re.search(pattern, "\0".join(tokens)) is not None


_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def _shorter(text: str) -> Iterator[str]:
    """A text in pieces, which depend on what is before their ends and on one word behind alone, so
    that texts which begin alike have the same first pieces."""
    begin = 0
    while place := _BEFORE_WORD.search(text, begin + _LONG):
        yield text[begin : place.end()]
        begin = place.end()
    yield text[begin:]


def _common(one: TokenIds, other: TokenIds) -> int:
    """How many tokens are the same at the beginning of both."""
    length = min(len(one), len(other))
    same = one[:length] == other[:length]
    return length if same.all() else int(same.argmin())


def _texts_and_spans(spans: Iterable[Span]) -> Iterator[str | Span | At | Keep]:
    """The texts of spans, to be joined with the text around them, and the spans that are separate,
    after the positions of those that have one; and after a PREFIX span whether it is kept."""
    for span in spans:
        if span.position is not None:
            yield At(span.position)
        is_text = isinstance(span.content, str) and span.reuse is Reuse.PREFIX
        yield span.content if is_text and isinstance(span.content, str) else span
        if span.keep > 0 and span.reuse is Reuse.PREFIX:
            yield Keep(span.keep, span.keep_for)


def _exchanges(prompt: Prompt) -> Iterator[Exchange]:
    """The exchanges of a prompt, including nested groups, but not those inside other exchanges."""
    for span in prompt:
        if isinstance(span.content, Exchange):
            yield span.content
        elif isinstance(span.content, Nest):
            yield from _exchanges(span.content.spans)


def _texts(runs: Iterable[_Run]) -> Iterator[str]:
    """All texts that have to be tokenised."""
    for run in runs:
        match run:
            case Span(content=str(text)):
                yield text
            case _Marked(pieces, marks):
                yield from pieces
                yield from (mark.before for mark in marks)
            case _Nested(runs=inside):
                yield from _texts(inside)
            case list():
                yield from run


def _start_tokens(tokenizer: Tokenizer) -> list[int]:
    """Special tokens that the tokenizer puts before plain text, such as <s>."""
    (plain,), full = tokenizer.encode(["x"]), tokenizer.encode_whole("x")
    return full[: full.index(plain[0])] if plain and plain[0] in full else []
