"""One call's sampling applied: prompts become requests of the engine, requests text and answers."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relquery.backends.local.labels import ComparedTexts, Labels
from relquery.engine.requests.labels import Normalization
from relquery.engine.requests.pieces import PLAIN, Adapter, Chain, Placing
from relquery.engine.requests.request import Draw, History, Request, Rules
from relquery.errors import ConfigError, PromptTooLongError, RequestError, not_embedded
from relquery.prompt import Adjustments, Answer, Compared, Finish, Sampling, TokenLogprob

if TYPE_CHECKING:
    from relquery.model.grammar import Grammar
    from relquery.model.served import ServedModel
    from relquery.model.text.render import Renderer

Spell = Callable[[list[int]], str]
"""The text that further tokens of an answer add; what is not yet whole comes with later ones."""


class Begun(NamedTuple):
    """Facts about a prompt whose answer has begun. For the fields see Answer."""

    prompt_tokens: int
    cached_tokens: int
    kept: tuple[int, ...]
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None


class Piece(NamedTuple):
    """A part of an answer. All pieces of an answer, joined, are its text.

    text: may be empty. tokens: ids drawn since the piece before. logprobs: of each of them; None
    where they were not asked for. begun: of the first piece; None in those after it.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None
    begun: Begun | None = None


@dataclass(slots=True)
class TextStream:
    """The text of one answer that can no longer change.

    begun: what the first piece says of the prompt. spell: of this answer alone; None where only the
    whole answer has a text. stop: strings that end the answer and are cut from it: what may be the
    beginning of one is held back.
    """

    begun: Callable[[], Begun]
    spell: Spell | None
    stop: Sequence[str] = ()
    _begins: bool = True
    _seen: int = 0
    _told: int = 0  # tokens that pieces have told of
    _sent: int = 0  # characters
    _held: str = ""

    def take(
        self, output: list[int], logprobs: Sequence[TokenLogprob] | None = None
    ) -> Piece | None:
        """What is new in an answer's tokens so far; None if nothing is. logprobs: of the output."""
        if len(output) == self._seen:
            return None
        new = output[self._seen :]
        self._seen = len(output)
        text = "" if self.spell is None else self.spell(new)
        if self.stop and self.spell is not None:
            text = self._held + text
            kept = _may_begin(text, self.stop)
            text, self._held = text[: len(text) - kept], text[len(text) - kept :]
        if not text:
            return None
        return self._piece(text, output, logprobs)

    def end(self, answer: Answer) -> Piece | None:
        """The rest of an answer that has ended; None if all of it was told."""
        text = (answer.text or "")[self._sent :]
        tokens = list(answer.tokens or ())
        if not text and len(tokens) <= self._told:
            return None
        return self._piece(text, tokens, answer.logprobs)

    def _piece(
        self, text: str, output: list[int], logprobs: Sequence[TokenLogprob] | None
    ) -> Piece:
        tokens = tuple(output[self._told :])
        new = None if logprobs is None else tuple(logprobs[self._told :])
        self._told = len(output)
        self._sent += len(text)
        begun = self.begun() if self._begins else None
        self._begins = False
        return Piece(text, tokens, new, begun)


def _may_begin(text: str, stops: Sequence[str]) -> int:
    """How many characters at a text's end may begin a stop string, or are part of one."""
    most = 0
    for stop in stops:
        start = text.find(stop)
        if start >= 0:  # the answer ends here
            most = max(most, len(text) - start)
            continue
        for size in range(min(len(stop) - 1, len(text)), most, -1):
            if text.endswith(stop[:size]):
                most = size
                break
    return most


class Asking:
    """The way in which the prompts of one call are asked.

    placing: see relquery.engine.requests.pieces. Stop strings do not cut an answer among labels.
    scored: the labels must be weighed, normalised so; None where they need not. Then they are
    where it is faster, branch by branch, which changes no answer. grammar: of the schema, if there
    is one; then texts that answers are compared with end none early. If log-probabilities are
    asked for, every token of an answer is drawn: nothing is weighed unasked, drafted or skipped.
    adapter: that they are answered with.

    Raises ConfigError for labels that must be weighed and cannot be.
    """

    def __init__(
        self,
        model: ServedModel,
        renderer: Renderer,
        placing: Placing,
        sampling: Sampling,
        scored: Normalization | None = None,
        grammar: Grammar | None = None,
        adapter: Adapter = PLAIN,
    ) -> None:
        self._grammar, self._adapter = grammar, adapter
        self._model, self._renderer, self._placing = model, renderer, placing
        self._sampling, self._logprobs = sampling, sampling.logprobs
        if self._logprobs is None and sampling.prompt_logprobs is not None:
            self._logprobs = 0  # what tells of the prompt is drawn with the answer's first token
        self._labels = Labels(renderer, model.end, sampling.labels, model.vocabulary)
        self._stop = () if sampling.labels else sampling.stop
        self._adjusted = sampling.adjustments
        at_least = 0 if self._adjusted is None else self._adjusted.min_tokens
        self._goes_on = self._adjusted is not None and self._adjusted.ignore_eos
        is_fixed = sampling.labels or grammar is not None or self._goes_on or model.length is None
        self._length = None if is_fixed else max(model.length or 0, at_least)
        self._check_biased(model.vocabulary)
        # A stop string of n bytes lies within the last n tokens once its last byte is there; a few
        # more let the text before it decode.
        self._tail = 8 + max((len(text.encode()) for text in self._stop), default=0)
        self._max_tokens = max(map(len, self._labels.tokens), default=sampling.max_tokens)
        self._must_score, self._trie = scored is not None, None
        if scored is not None:
            self._trie = self._labels.to_score(scored)
        elif sampling.temperature == 0 and self._logprobs is None:
            self._trie = self._labels.to_score_unasked()
        self._compared, self._drafts = None, None
        if isinstance(sampling, Compared) and not sampling.labels and grammar is None:
            self._compared = ComparedTexts(renderer, model.end, sampling.texts, self._stop)
            is_drafted = sampling.max_tokens > 1 and self._logprobs is None
            is_drafted &= self._adjusted is None  # a draft's draws do not know what it has drawn
            if sampling.temperature == 0 and is_drafted:
                self._drafts = self._compared.drafts(model.vocabulary)

        self._rules = Rules(
            end=frozenset() if self._goes_on else model.end,
            labels=self._labels.tokens,
            stop=self._stopped if self._stop or self._length is not None else None,
            decided=self._compared.is_decided if self._compared is not None else None,
        )

    def request(self, number: int, group: int, prompt: Chain) -> Request:
        """A request for one prompt."""
        request = Request(
            id=number,
            source=prompt,
            max_tokens=self._max_tokens,
            rules=self._rules,
            drafts=self._drafts,
            group=group,
            scored=self._trie is not None,
            trie=self._trie,
            adapter=self._adapter,
            placing=self._placing,
            prompt_logprobs=self._sampling.prompt_logprobs,
        )
        sampling = self._sampling
        request.alone = sampling.prompt_logprobs is not None
        seed = _seed_of(request, sampling.seed)
        matcher = None
        if self._grammar is not None:
            matcher = self._grammar.matcher(stepwise=self._logprobs is not None)
        request.draw = Draw(
            sampling.temperature,
            sampling.top_p,
            sampling.top_k,
            seed,
            matcher=matcher,
            logprobs=self._logprobs,
            history=None if self._adjusted is None else self._history(request, self._adjusted),
        )
        return request

    def _history(self, request: Request, adjusted: Adjustments) -> History:
        counts = adjusted.repetition_penalty != 1
        prompt = [piece.tokens for piece in request.pieces] if counts else []
        seen = np.unique(np.concatenate([np.empty(0, np.int64), *prompt]).astype(np.int64))
        return History(adjusted, seen, request.output, tuple(sorted(self._rules.end)))

    def _check_biased(self, vocabulary: int) -> None:
        """Raises ConfigError for a token that the model does not have."""
        for token, _ in () if self._adjusted is None else self._adjusted.logit_bias:
            if token >= vocabulary:
                raise ConfigError(
                    f"logit_bias has token {token}; the model has tokens below {vocabulary:,}."
                )

    def limit(self, request: Request) -> None:
        """Bound a request's answer by the model's context.

        Raises PromptTooLongError if its prompt leaves no room for one, and RequestError if there is
        none for labels that must be weighed.
        """
        self._check_known(request)
        if request.prompt_logprobs is not None and len(request.pieces) > 1:
            raise RequestError(
                "A prompt with independent spans has no prompt_logprobs. Leave one of them out."
            )
        size, context = request.end, self._model.context
        if size >= context and size > request.prompt_tokens:
            raise RequestError(
                f"The positions of the prompt end at {size:,}; they must end below the model's "
                f"context of {context:,}. Lower the positions of its spans."
            )
        if size >= context:
            raise PromptTooLongError(size, context, "the model's context")
        if self._must_score:
            assert request.trie is not None
            if size + request.trie.depth > context:
                raise RequestError(
                    f"The prompt has {size} tokens, and reading the labels takes "
                    f"{request.trie.depth} more; together they exceed the model's context of "
                    f"{context}. Shorten the prompt or the labels."
                )
        elif size + self._max_tokens > context:
            request.scored, request.trie = False, None
        if request.drafts is not None and size + request.drafts.longest > context:
            request.drafts = None
        # What is scored is drawn from once, however long the answer.
        request.max_tokens = 1 if request.scored else min(request.max_tokens, context - size)

    def _check_known(self, request: Request) -> None:
        """Raise RequestError for a token that the model has no embedding for."""
        known = self._model.vocabulary
        for piece in request.pieces:
            tokens = piece.tokens
            if len(tokens) and not (tokens.min() >= 0 and tokens.max() < known):
                token = next(int(token) for token in tokens if not 0 <= token < known)
                word = self._renderer.decode([token]) if token >= 0 else ""
                raise RequestError(not_embedded("prompt", token, word, known))

    def answer(self, request: Request) -> Answer:
        """The answer of a request that has ended by itself."""
        assert request.finish is not None
        if request.finish in (Finish.ERROR, Finish.CANCELLED):
            return ended(request, request.finish, request.error)
        cut = request.finish is Finish.LENGTH
        text, stopped_by = self._text(request)
        return Answer(
            text=text,
            finish=request.finish,
            error=self._why_cut(len(request.output)) if cut else None,
            prompt_tokens=request.prompt_tokens,
            cached_tokens=request.cached or 0,
            output_tokens=len(request.output),
            tokens=tuple(request.output),
            scores=self._labels.scores(request.scores),
            first_token=None if request.first_at is None else request.first_at - request.arrival,
            logprobs=None if self._sampling.logprobs is None else tuple(request.logprobs or ()),
            prompt_logprobs=None if request.prompt_logprobs is None else tuple(request.prompt_told),
            stopped_by=stopped_by,
            kept=request.kept_tokens,
        )

    def stream(self, request: Request) -> TextStream:
        """An answer's text, for one request, while it is drawn."""

        def begun() -> Begun:
            asked = request.prompt_logprobs is not None
            told = tuple(request.prompt_told) if asked else None
            return Begun(request.prompt_tokens, request.cached or 0, request.kept_tokens, told)

        if self._labels.tokens:  # a label is written as it was given, whatever its tokens spell
            return TextStream(begun, None)
        if self._grammar is not None:
            return TextStream(begun, self._grammar.spelling(), self._stop)
        return TextStream(begun, self._renderer.spelling(), self._stop)

    def _text(self, request: Request) -> tuple[str, str | None]:
        """An answer's text, and the stop string that was cut from it."""
        chosen = self._labels.text(request.output)
        if chosen is not None:
            return chosen, None
        read = self._renderer.decode if self._grammar is None else self._grammar.text
        text = read(request.output)
        # Of those that begin at one place, the shortest was there first.
        stops = ((text.find(stop), len(stop), stop) for stop in self._stop if stop in text)
        cut, _, stop = min(stops, default=(len(text), 0, None))
        return text[:cut], stop

    def _why_cut(self, tokens: int) -> str:
        if tokens < self._max_tokens:
            return (
                f"The answer was cut off after {tokens} tokens: there is no more room in the "
                "model's context or the KV cache. Shorten the prompt, or raise cache_tokens."
            )
        return (
            f"The answer was cut off after {tokens} tokens. "
            "Raise max_tokens, or ask for a shorter answer."
        )

    def _stopped(self, output: Sequence[int]) -> bool:
        if self._adjusted is not None and len(output) < self._adjusted.min_tokens:
            return False
        if self._length is not None and len(output) >= self._length:
            return True
        tail = self._renderer.tail(output, self._tail)
        return any(text in tail for text in self._stop)


def cancelled(request: Request) -> Answer:
    """What stands for the answer of a request that was ended early."""
    return ended(request, Finish.CANCELLED, "It was cancelled before its answer was whole.")


def ended(request: Request, finish: Finish, error: str | None) -> Answer:
    """What stands for the answer of a request that has none. A prompt that was never begun has cost
    nothing."""
    return Answer(
        text=None,
        finish=finish,
        error=error,
        prompt_tokens=0 if request.started_at is None else request.prompt_tokens,
        cached_tokens=request.cached or 0,
        output_tokens=len(request.output),
    )


def _seed_of(request: Request, given: int | None) -> int:
    """A fresh seed where none is given; else one that also comes from the request's content.

    So neither the order of the rows nor what else is asked changes a sampled answer.
    """
    if given is None:
        return secrets.randbits(62)
    content = hashlib.blake2b(digest_size=7)
    for piece in request.pieces:
        content.update(piece.tokens.tobytes())
    return given ^ int.from_bytes(content.digest())
