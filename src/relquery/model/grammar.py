"""Answers that must have a form, such as JSON under a schema: which tokens may come next, found by
llguidance.

Where the grammar leaves a single text, such as the key of an object, the library allows a single
token: the one with which its tokenizer begins that text. So equal texts are equal tokens. See
https://github.com/guidance-ai/llguidance.
"""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from relquery.arrays import Int64s, Words
from relquery.engine.requests.request import Matcher
from relquery.errors import ConfigError, ModelError
from relquery.model.text.tokenizer import Tokenizer
from relquery.model.tool_grammar import Literals, lark_of
from relquery.tools import CallForm, ToolUse

_OPTIONS: Any = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": False,
    "whitespace_pattern": None,
    "lenient": False,  # what it cannot express is an error
    "coerce_one_of": False,
}
_LIMITS: Any = {
    "initial_lexer_fuel": 400_000,  # about 10 ms
    "max_grammar_size": 100_000,
    "max_lexer_states": 50_000,  # about 100 MB of an answer
    "verbose_errors": False,  # an error says nothing of the library's inside
}
_KEPT = 200
"""Grammars that a model keeps at most."""
_NO_END = "<|relquery end|>"


class Grammars:
    """The grammars of one model, each compiled once.

    vocabulary: tokens that the network weighs. end: ids that end an answer; if there are none, an
    answer ends only where nothing can follow. written: gives the schema that the library reads in
    place of one; raises ConfigError for one that it would not follow exactly. arguments: the same
    for arguments of functions.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocabulary: int,
        end: Collection[int],
        written: Callable[[str], str] = str,
        arguments: Callable[[str], str] = str,
    ) -> None:
        self._given = tokenizer
        self._written, self._arguments = written, arguments
        self._vocabulary, self._end = vocabulary, sorted(end)
        self._tokenizer: Any = None
        self._unused: int | None = None
        self._known: dict[tuple[str, object], Grammar] = {}

    def of(self, schema: str, owner: str | None = "") -> Grammar:
        """The grammar of a JSON Schema. owner: who shares it; None for nobody.

        Raises ConfigError for a schema that it cannot express, and ModelError for a tokenizer that
        it cannot read.
        """
        return self._kept(owner, ("schema", schema), lambda: self._of_schema(schema))

    def of_lark(self, lark: str, owner: str | None = "") -> Grammar:
        """The grammar of a text in the library's Lark syntax. Raises ConfigError for one that it
        cannot read. owner: see `of`."""
        return self._kept(owner, ("grammar", lark), lambda: self._of_lark(lark))

    def of_tools(self, use: ToolUse, form: CallForm, owner: str | None = "") -> Grammar:
        """The grammar of answers that may call functions. owner, errors: see `of`."""
        return self._kept(owner, ("tools", use, form), lambda: self._of_tools(use, form))

    def _kept(self, owner: str | None, key: object, make: Callable[[], Grammar]) -> Grammar:
        if owner is None:
            return make()
        grammar = self._known.get((owner, key))
        if grammar is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            grammar = self._known[owner, key] = make()
        return grammar

    def spell(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes that each token stands for; of a special token, its name."""
        if self._tokenizer is None:
            self._tokenizer = self._read_tokenizer()
        names = {number: name.encode() for name, number in self._given.special_ids.items()}
        return [names.get(each) or self._tokenizer.decode_bytes([each]) for each in tokens]

    def _of_schema(self, schema: str) -> Grammar:
        import llguidance

        schema = self._written(schema)
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=_OPTIONS)
        except ValueError as error:
            raise ConfigError(
                f"The schema is not JSON: {error}. NaN, Infinity and halves of characters are none."
            ) from error
        return self._compile(grammar, "schema")

    def _of_tools(self, use: ToolUse, form: CallForm) -> Grammar:
        every = self._given.backend.get_added_tokens_decoder().items()
        added = [each for each in every if each[0] < self._vocabulary and _is_named(each[1])]
        tokens = {token.content: number for number, token in added}
        free = {number for number, token in added if not token.special and number not in self._end}
        lark = lark_of(use, form, tokens, free, self._arguments)
        shown = free | Literals(tokens).ids_in(form)
        texts = {number: token.content.encode() for number, token in added if number in shown}
        return self._of_lark(lark, "tools", texts, self._begins_blank())

    def _of_lark(
        self,
        lark: str,
        name: str = "grammar",
        shown: Mapping[int, bytes] | None = None,
        begins_blank: bool = False,
    ) -> Grammar:
        import llguidance

        grammar = llguidance.LLMatcher.grammar_from_lark(lark)
        return self._compile(grammar, name, shown, begins_blank)

    def _begins_blank(self) -> bool:
        """Whether a text's first token has a blank in front, which decoding drops."""
        (ids,) = self._given.encode(["a"])
        return self.spell(ids[:1]) == [b" a"] and self._given.decode(ids) == "a"

    def _compile(
        self,
        grammar: str,
        name: str,
        shown: Mapping[int, bytes] | None = None,
        begins_blank: bool = False,
    ) -> Grammar:
        """Raises ConfigError. name: of the setting, for errors."""
        if self._tokenizer is None:
            self._tokenizer = self._read_tokenizer()
        import llguidance

        limits = llguidance.LLParserLimits(**_LIMITS)
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise ConfigError(
                f"The {name} cannot be followed: {_said(matcher.get_error())}. Remove this from "
                f"the {name}, and check the answers afterwards."
            )
        return Grammar(self._tokenizer, matcher, self._unused, shown or {}, begins_blank)

    def _read_tokenizer(self) -> Any:
        """The model's tokenizer as the library reads it. Takes a second for 128,000 tokens."""
        import llguidance

        try:
            backend = Backend.from_str(_known(self._given.backend, self._vocabulary))
            backend.no_padding()
            backend.no_truncation()
            end = self._end
            if not end:
                backend.add_special_tokens([AddedToken(_NO_END, special=True)])
                end = [int(backend.get_vocab()[_NO_END])]
                self._unused = end[0]
            size = max(self._vocabulary, backend.get_vocab_size(with_added_tokens=True))
            read = llguidance.LLTokenizer(backend.to_str(), n_vocab=size, eos_token=end)
        except ValueError as error:
            raise ModelError(
                f"The model's tokenizer cannot be used for answers under a schema: {error}. Use a "
                "model with a byte-level or SentencePiece tokenizer, or ask without a schema."
            ) from error
        for token in end:
            if not read.is_special_token(token):
                raise ModelError(
                    f"The model ends an answer with token {token}, which is ordinary text, so no "
                    "answer can be checked under a schema. Mark it as special in the tokenizer."
                )
        return read


def _known(tokenizer: Backend, vocabulary: int) -> str:
    """A tokenizer as JSON, without the added tokens that the network does not know. Special tokens
    have other names: where a schema wants their text, ordinary tokens spell it."""
    content = json.loads(tokenizer.to_str())
    model = content["model"]
    content["added_tokens"] = [each for each in content["added_tokens"] if each["id"] < vocabulary]
    special = [
        each
        for each in content["added_tokens"]
        if each["special"] or each["content"][:1] + each["content"][-1:] == "<>"  # to the library
    ]
    named = {each["content"]: f"<|relquery {each['id']}|>" for each in special}
    for each in special:
        each["content"] = named[each["content"]]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {named.get(word, word): token for word, token in model["vocab"].items()}
    else:
        model["vocab"] = [[named.get(word, word), score] for word, score in model["vocab"]]
    if model.get("unk_token") is not None:
        model["unk_token"] = named.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        model["merges"] = [
            each for each in model["merges"] if named.keys().isdisjoint(_words(each))
        ]
    return json.dumps(content)


def _is_named(token: AddedToken) -> bool:
    """Whether an added token is a special one to the library."""
    return token.special or token.content[:1] + token.content[-1:] == "<>"


def _words(merge: str | list[str]) -> tuple[str, str, str]:
    """The two words that a merge joins, which older files part by a space, and what they make."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right, left + right


def _said(error: str) -> str:
    """What the library says about a schema, without how it writes patterns."""
    first = error.partition("\n")[0]
    if "regex is empty" in first.lower():
        is_sure = not first.startswith("Unable")
        return (
            "no text has its pattern, format and lengths at once"
            if is_sure
            else "its pattern is too complex beside its format and lengths"
        )
    if first.startswith("regex parse error"):
        return "its pattern is not a regular expression, or is nested too deep"
    return first if len(first) <= 300 else f"{first[:300]}..."


class Grammar:
    """A schema for one tokenizer. Never changes: all requests of all calls share it.

    unused: an end token that only the library knows, if the model has none. shown: the texts of
    special tokens that an answer shows; others have none. begins_blank: whether a blank at the
    beginning of an answer is not part of its text.
    """

    def __init__(
        self,
        tokenizer: Any,
        matcher: Any,
        unused: int | None,
        shown: Mapping[int, bytes],
        begins_blank: bool,
    ) -> None:
        self._tokenizer, self._matcher, self._unused = tokenizer, matcher, unused
        self._shown, self._begins_blank = shown, begins_blank

    def matcher(self, stepwise: bool = False) -> SchemaMatcher:
        """The state of a new answer. stepwise: forced tokens are drawn too, and are the same."""
        return SchemaMatcher(self._tokenizer, self._matcher.deep_copy(), self._unused, stepwise)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of an answer; the end of one that was cut may be half a character."""
        decoded = self._bytes(tokens).decode(errors="replace")
        return decoded.removeprefix(" ") if self._begins_blank else decoded

    def spelling(self) -> Callable[[list[int]], str]:
        """A function that gives the text of one answer's tokens as they come."""
        characters = getincrementaldecoder("utf-8")(errors="replace")
        is_first = self._begins_blank

        def spell(tokens: list[int]) -> str:
            nonlocal is_first
            text = characters.decode(self._bytes(tokens))
            if is_first and text:
                is_first, text = False, text.removeprefix(" ")
            return text

        return spell

    def _bytes(self, tokens: Sequence[int]) -> bytes:
        if self._shown.keys().isdisjoint(tokens):
            given: bytes = self._tokenizer.decode_bytes(list(tokens))
            return given
        return b"".join(
            self._shown.get(token) or self._tokenizer.decode_bytes([token]) for token in tokens
        )


class SchemaMatcher:
    """The state of one answer in a grammar. See Matcher.

    stepwise: it gives no forced tokens; each is the only one allowed when it is drawn. pending:
    those that the grammar has taken and that are not drawn yet.
    """

    def __init__(
        self, tokenizer: Any, inner: Any, unused: int | None, stepwise: bool = False
    ) -> None:
        self.inner, self.unused, self._stepwise = inner, unused, stepwise
        self.pending: deque[int] = deque()
        self.words = -(-int(tokenizer.vocab_size) // 32)

    def begin(self, most: int) -> list[int]:
        """Take the forced tokens that the answer begins with, and return them."""
        forced = self._forced()
        kept = forced[: max(0, min(most, len(forced) - self.inner.is_stopped()))]
        if len(kept) < len(forced):
            self.inner.rollback(len(forced) - len(kept))
        return self._given(kept)

    def take(self, token: int) -> list[int]:
        """Take a drawn token; returns it and the forced tokens after it, which are taken too."""
        if self.pending:
            assert token == self.pending.popleft(), "a token was drawn that is not allowed"
            return [token]
        if not self.inner.consume_token(token):
            return [token]
        return [token, *self._given(self._forced())]

    def allowed(self) -> Int64s:
        """Ids that may come next, sorted; with end tokens if the answer may end here."""
        return ids_of(masks([self])[0])

    @property
    def is_over(self) -> bool:
        """Whether nothing but the end can follow."""
        is_stopped = bool(self.inner.is_stopped()) and not self.inner.is_error()
        return is_stopped and not self.pending

    @property
    def error(self) -> str | None:
        """Why the answer cannot be continued although it is not over, if it cannot."""
        if not self.inner.is_error():
            return None
        return (
            f"The answer could not be continued under its schema: {_said(self.inner.get_error())}."
        )

    def _given(self, forced: list[int]) -> list[int]:
        """Those forced tokens that need no draw."""
        if not self._stepwise:
            return forced
        self.pending.extend(forced)
        return []

    def _forced(self) -> list[int]:
        """Take all tokens that are forced now, and return them."""
        tokens: list[int] = []
        while forced := self.inner.compute_ff_tokens():
            if not self.inner.consume_tokens(forced):
                break
            tokens += forced
        return tokens


def masks(matchers: Sequence[Matcher]) -> Words:
    """Which tokens each matcher of a model allows (matchers, words): token t is bit t % 32 of word
    t // 32.

    All are found in parallel, outside Python's lock.
    """
    ours = [each for each in matchers if isinstance(each, SchemaMatcher)]
    assert len(ours) == len(matchers), "the network has grammars of another kind"
    words = ours[0].words
    result = np.zeros((len(ours), words), np.uint32)
    inner = [(matcher.inner, row) for row, matcher in enumerate(ours) if not matcher.pending]
    if inner:
        _executor().unsafe_compute_mask_ptr(inner, result.ctypes.data, words * 4, len(ours))
    for row, matcher in enumerate(ours):
        if matcher.pending:
            result[row, matcher.pending[0] // 32] = 1 << matcher.pending[0] % 32
        if matcher.unused is not None:
            result[row, matcher.unused // 32] &= ~np.uint32(1 << matcher.unused % 32)
    return result


def ids_of(mask: Words) -> Int64s:
    """The tokens of one mask (words,), sorted."""
    allowed = np.flatnonzero(mask)
    bits = np.unpackbits(mask[allowed].view(np.uint8), bitorder="little").reshape(len(allowed), 32)
    ids: Int64s = (allowed[:, None] * 32 + np.arange(32))[bits.view(bool)]
    return ids


@cache
def _executor() -> Any:
    import llguidance

    return llguidance.LLExecutor()
