"""Prompts to token ids: chat template, special tokens, and each distinct piece tokenised once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from relquery.engine.pieces import Chain, Tokens
from relquery.errors import RequestError
from relquery.prompt import Exchange, Prompt, Reuse, Role, Span

_SLOT = "\ue000{}\ue001"  # private-use characters: no chat template holds them
_KEPT_PIECES = 200_000
_Run = int | Span | list[str]  # a special token, what stands apart, text cut into pieces
_AFTER_LINE = re.compile(r"\S\n\Z")


class Renderer:
    """Renders prompts for one tokenizer.

    Text is cut after a newline between two non-blank characters, where the tokenizer never
    merges; each distinct piece is tokenised once. Special tokens count only in the template:
    in the prompt's own text they are ordinary characters.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = {str(t): i for i, t in tokenizer.added_tokens_decoder.items() if t.special}
        names = sorted(self._special, key=len, reverse=True)
        self._split_special = re.compile(f"({'|'.join(map(re.escape, names))})") if names else None
        self._start = _start_tokens(tokenizer)
        self._templates: dict[tuple[Role, ...], tuple[str, ...]] = {}
        self._pieces: dict[str, Tokens] = {}
        self.cuts = self._may_cut()

    def render(self, prompts: Sequence[Prompt]) -> list[Chain]:
        """Token ids of each prompt, with the turn of the assistant opened.

        Independent spans are chains in it, tokenised alone; equal exchanges are one object.

        Raises RequestError for a prompt that the template refuses or that is not text.
        """
        contents = (span.content for prompt in prompts for span in prompt)
        inner = {content for content in contents if isinstance(content, Exchange)}
        exchanges = {exchange: self._exchange(exchange) for exchange in inner}
        runs = [list(self._runs(prompt)) for prompt in prompts]
        self._tokenise({text for prompt in runs for text in _texts(prompt)})
        return [self._join(prompt, exchanges) for prompt in runs]

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of text that continues a prompt, such as a label."""
        return tuple(self._tokenizer(text, add_special_tokens=False, **_PLAIN)["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of an answer, without special tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def _join(self, runs: Iterable[_Run], exchanges: Mapping[Exchange, Chain]) -> Chain:
        parts: list[Tokens | Chain] = []
        for run in runs:
            match run:
                case int():
                    parts.append(np.array([run], dtype=np.int32))
                case Span(content=str(text)):
                    parts.append(Chain((self._pieces[text],)))
                case Span(content=Exchange() as exchange):
                    parts.append(exchanges[exchange])
                case Span(content=tuple(ids), reuse=reuse):
                    tokens = np.array(ids, dtype=np.int32)
                    parts.append(tokens if reuse is Reuse.PREFIX else Chain((tokens,)))
                case list():
                    parts += [self._pieces[piece] for piece in run]
        return Chain(tuple(parts))

    def _exchange(self, exchange: Exchange) -> Chain:
        """What the cache holds of an inner generation: its prompt and its answer."""
        (prompt,) = self.render([exchange.prompt])
        return Chain((*prompt.parts, np.array(exchange.output, dtype=np.int32)))

    def _tokenise(self, pieces: set[str]) -> None:
        if len(self._pieces) + len(pieces) > _KEPT_PIECES:
            self._pieces.clear()
        new = [piece for piece in pieces if piece not in self._pieces]
        if new:
            encoded = self._tokenizer(new, add_special_tokens=False, **_PLAIN)["input_ids"]
            arrays = (np.array(ids, dtype=np.int32) for ids in encoded)
            self._pieces.update(zip(new, arrays, strict=True))

    def _runs(self, prompt: Prompt) -> Iterator[_Run]:
        """Special token ids, spans apart, and runs of ordinary text, cut into pieces."""
        yield from self._start if not self._tokenizer.chat_template else ()
        text: list[str] = []
        for part in self._parts(prompt):
            if isinstance(part, str):
                text.append(part)
            else:
                if text:
                    yield self._cut(text)
                    text = []
                yield part
        if text:
            yield self._cut(text)

    def _cut(self, texts: list[str]) -> list[str]:
        """Join texts wherever the tokenizer might merge across their boundary."""
        if not self.cuts:
            return ["".join(texts)]
        pieces = [texts[0]]
        for text in filter(None, texts[1:]):
            if _AFTER_LINE.search(pieces[-1]) and not text[0].isspace():
                pieces.append(text)
            else:
                pieces[-1] += text
        return pieces

    def _parts(self, prompt: Prompt) -> Iterator[str | int | Span]:
        """The template's text and special tokens around the spans' own text, and spans apart."""
        turns = [(role, list(spans)) for role, spans in groupby(prompt, lambda span: span.role)]
        literals = self._template(tuple(role for role, _ in turns))
        for literal, (_, spans) in zip(literals, turns, strict=False):
            yield from self._literal(literal)
            yield from (_text_or_span(span) for span in spans)
        yield from self._literal(literals[-1])

    def _literal(self, text: str) -> Iterator[str | int]:
        for part in self._split_special.split(text) if self._split_special else [text]:
            if part:
                yield self._special.get(part, part)

    def _template(self, roles: tuple[Role, ...]) -> tuple[str, ...]:
        """What the chat template puts before, between and after the turns' contents."""
        if roles not in self._templates:
            self._templates[roles] = tuple(self._apply_template(roles))
        return self._templates[roles]

    def _apply_template(self, roles: tuple[Role, ...]) -> list[str]:
        slots = [_SLOT.format(turn) for turn in range(len(roles))]
        if not self._tokenizer.chat_template:
            text = "\n\n".join(slots) + "\nAnswer:"
        else:
            messages = [
                {"role": role.value, "content": slot}
                for role, slot in zip(roles, slots, strict=True)
            ]
            text = self._chat(messages)
        literals = re.split("|".join(slots), text) if slots else [text]
        if len(literals) != len(slots) + 1:
            raise RequestError("The model's chat template drops or repeats a message.")
        return literals

    def _chat(self, messages: list[dict[str, str]]) -> str:
        def apply(chat: list[dict[str, str]]) -> str:
            return str(
                self._tokenizer.apply_chat_template(
                    chat, tokenize=False, add_generation_prompt=True
                )
            )

        try:
            return apply(messages)
        except Exception as error:  # templates raise whatever their author chose
            if [m["role"] for m in messages[:2]] != ["system", "user"]:
                raise RequestError(f"The model's chat template refuses: {error}") from error
            # Some templates know no system role; its text then opens the user's turn.
            joined = f"{messages[0]['content']}\n\n{messages[1]['content']}"
            return apply([{"role": "user", "content": joined}, *messages[2:]])

    def _may_cut(self) -> bool:
        """Whether cutting after a newline gives the same tokens as tokenising jointly."""
        left, right = ['a"\n', "x,\n", "1\n", "{\n", ")\n", "é\n"], ['"b', "{", "}", "A", "7", "ü"]
        joint = self._tokenizer(
            [a + b for a in left for b in right], add_special_tokens=False, **_PLAIN
        )["input_ids"]
        apart = [[*self.encode(a), *self.encode(b)] for a in left for b in right]
        return [list(ids) for ids in joint] == apart and not self._merges_newline()

    def _merges_newline(self) -> bool:
        """Whether some token holds a newline that other text follows."""
        pattern = re.compile(r"(\n|Ċ|<0x0A>)[^\s\nĊĉčĠ]")
        return any(
            pattern.search(token) and token not in self._special
            for token in self._tokenizer.get_vocab()
            if len(token) > 1 and token != "<0x0A>"
        )


_PLAIN: dict[str, Any] = {"split_special_tokens": True, "verbose": False}


def _text_or_span(span: Span) -> str | Span:
    """What joins the text around it, or what stands apart."""
    if span.position is not None:
        raise RequestError("The embedded engine does not place spans at given positions.")
    if isinstance(span.content, str) and span.reuse is Reuse.PREFIX:
        return span.content
    return span


def _texts(runs: Iterable[_Run]) -> Iterator[str]:
    """All that is to be tokenised."""
    for run in runs:
        if isinstance(run, Span):
            if isinstance(run.content, str):
                yield run.content
        elif not isinstance(run, int):
            yield from run


def _start_tokens(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Special tokens that the tokenizer puts before plain text, such as <s>."""
    plain = tokenizer("x", add_special_tokens=False)["input_ids"]
    full = tokenizer("x")["input_ids"]
    return list(full[: full.index(plain[0])]) if plain and plain[0] in full else []
