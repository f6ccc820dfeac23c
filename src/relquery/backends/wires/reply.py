"""Replies of servers, read as answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from relquery.backends.wires.answer_text import (
    json_in,
    label_in,
    label_scores,
    unicode_problem,
    without_reasoning,
)
from relquery.backends.wires.errors import short
from relquery.prompt import Answer, Finish, Sampling

# Reasons to end, as servers name them; all others, and none, are those of whole answers.
_CUT = {"length", "max_tokens", "max_output_tokens", "model_length"}
_CUT |= {"model_context_window_exceeded"}
_FILTERED = {"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii"}
_NO = {"tool_calls", "tool_call", "function_call", "error", "abort", "aborted", "cancelled"}
_NO |= {"tool_use", "pause_turn", "canceled", "timeout", "insufficient_system_resource"}
_WHOLE = {"stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"}

REASONING = ("reasoning_content", "reasoning")
_MOST_TOKENS = 10**8  # of a prompt or an answer: no context is as long, and sums fit 32 bits


def to_answer(
    reply: Reply,
    sampling: Sampling,
    attempts: int,
    limit: int | None = None,
    stop: tuple[str, ...] = (),
    *,
    held: bool = False,
    may_be_empty: bool = False,
) -> Answer:
    """The answer in what a server said.

    limit: of the answer's tokens, as it was sent. stop: strings that the server was not told to
    stop at. held: see json_in. may_be_empty: whether no text is an answer, as it is before a string
    to stop at.
    """
    if sampling.scored:
        return _weighed(reply, sampling.labels, attempts)
    text, finish, problem = reply.ending(
        limit, stop, may_be_empty=may_be_empty or bool(sampling.stop)
    )
    if sampling.labels:
        label = None if problem or text is None else label_in(text, sampling.labels)
        if problem is None and label is None:
            finish = Finish.ERROR
            problem = f"The answer {short(str(text))!r} is not one of the labels."
        text = label
    if sampling.schema is not None and problem is None:
        inner = json_in(str(text), held=held)
        if inner is None:  # the text is kept: it can be shown, and asked about once more
            finish, problem = Finish.ERROR, f"The answer {short(str(text))!r} is not JSON."
        else:
            text = inner
    return reply.usage.counted(Answer(text, finish, problem, attempts=attempts))


def _weighed(reply: Reply, labels: tuple[str, ...], attempts: int) -> Answer:
    """The likeliest label, and how likely each is, whatever the answer goes on with."""
    _, finish, problem = reply.ending()
    is_weighed = problem is None or finish is Finish.LENGTH
    scores = label_scores(reply.logprobs, labels) if is_weighed else problem
    if not isinstance(scores, dict):
        return reply.usage.counted(Answer(None, Finish.ERROR, scores, attempts=attempts))
    likeliest = max(labels, key=lambda label: scores[label])
    answer = Answer(likeliest, Finish.STOP, attempts=attempts, scores=scores)
    return reply.usage.counted(answer)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a request took. A count that the server leaves out or garbles is 0.

    prompt: all of the prompt. cached, written: how many of them came from the provider's cache, and
    were stored there. output: of the answer, reasoning included. tells_output: whether the server
    says what the answer took. contradiction: what does not add up, in words. written_1h: those of
    `written` that are kept for an hour. usd: what the server says that the request cost, as
    OpenRouter does; None if nothing.
    """

    prompt: int = 0
    cached: int = 0
    output: int = 0
    written: int = 0
    tells_output: bool = field(default=True, compare=False)
    contradiction: str = field(default="", compare=False)
    written_1h: int = 0
    usd: float | None = None

    @classmethod
    def of(cls, said: object) -> Usage:
        """From the `usage` of a chat completion, whatever stands there."""
        return cls.named(said, "prompt", "completion")

    @classmethod
    def named(cls, said: object, prompt: str, output: str) -> Usage:
        """From a `usage` that names the tokens of prompt and answer so."""
        usage = _object(said)
        of_prompt = _object(usage.get(f"{prompt}_tokens_details"))
        of_output = _object(usage.get(f"{output}_tokens_details"))
        counted = cls.counting(
            usage.get(f"{prompt}_tokens"),
            of_prompt.get("cached_tokens"),
            usage.get(f"{output}_tokens"),
            of_prompt.get("cache_write_tokens"),
            usage.get("total_tokens"),
            of_output.get("reasoning_tokens"),
        )
        cost = usage.get("cost")
        if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < inf:
            return replace(counted, usd=float(cost))
        return counted

    @classmethod
    def counting(
        cls,
        prompt: object,
        cached: object,
        output: object,
        written: object,
        total: object = None,
        reasoning: object = None,
    ) -> Usage:
        """From numbers as a server gives them, at the dearest reading where they contradict.

        Some servers count reasoning in the total alone, or beside the output.
        """
        asked, drawn, thought = count(prompt), count(output), count(reasoning)
        read, stored, of_all = count(cached), count(written), count(total)
        contradiction = ""
        if read + stored > asked:
            contradiction = f"{read + stored} of {asked} prompt tokens are of a cache"
            asked += read + stored
        most = max(drawn, of_all - asked, drawn + thought if thought > drawn else 0)
        if of_all and of_all < asked + most:
            contradiction = f"a prompt of {asked} and an answer of {most} tokens are {of_all}"
        tells_output = most > 0 or output == 0
        return cls(asked, read, most, stored, tells_output, contradiction)

    def counted(self, answer: Answer) -> Answer:
        """An answer with these counts."""
        return replace(
            answer,
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            output_tokens=self.output,
            written_tokens=self.written,
            written_1h_tokens=self.written_1h,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a server. reason: why it ended. reasoned: whether reasoning came apart from it.

    logprobs: of its tokens, in the form of a chat completion's `logprobs.content`; None for none.
    """

    text: str | None
    reason: object
    refusal: object
    reasoned: bool
    usage: Usage
    logprobs: Any = None

    @property
    def is_refused(self) -> bool:
        """Whether the model refused, or a filter withheld the answer."""
        reason = self.reason.lower() if isinstance(self.reason, str) else None
        return bool(self.refusal) or reason in _FILTERED

    def ending(
        self,
        limit: int | None = None,
        stop: tuple[str, ...] = (),
        *,
        may_be_empty: bool = False,
    ) -> tuple[str | None, Finish, str | None]:
        """The answer's text, how it ended, and what is wrong with it. See to_answer."""
        reason = self.reason.lower() if isinstance(self.reason, str) else None
        answer = None if self.text is None else without_reasoning(self.text)
        problem = None if reason in _CUT else self._withheld(reason)
        problem = problem or unicode_problem(answer or self.text)
        if problem is not None:
            return None, Finish.ERROR, problem
        if answer is not None and (cut := _stopped(answer, stop)) is not None:
            return cut, Finish.STOP, None
        if reason in _CUT or self._seems_cut(reason, answer, limit):
            return answer or self.text, Finish.LENGTH, self._cut(answer)
        is_empty = answer == self.text == "" and reason in _WHOLE and not self.reasoned
        if answer or (is_empty and may_be_empty):
            return answer, Finish.STOP, None
        return None, Finish.ERROR, self._empty(answer, is_whole=is_empty)

    def _withheld(self, reason: str | None) -> str | None:
        """Why there is no answer, whatever text there is."""
        if reason in _FILTERED:
            return "The provider's content filter withheld the answer."
        if self.refusal:
            return f"The model refused: {short(str(self.refusal))}"
        return f"The server's answer is incomplete (finish: {reason!r})." if reason in _NO else None

    def _seems_cut(self, reason: str | None, answer: str | None, limit: int | None) -> bool:
        """In the middle of reasoning; or at the limit, where the server does not say why."""
        if self.text is None or answer is None:
            return self.text is not None
        return reason not in _WHOLE and limit is not None and self.usage.output >= limit

    def _cut(self, answer: str | None) -> str:
        if not answer and (self.reasoned or answer != self.text):
            return (
                f"The answer was cut off after {self.usage.output} tokens, during the model's "
                "reasoning. Raise max_tokens, or turn off reasoning."
            )
        return (
            f"The answer was cut off after {self.usage.output} tokens. "
            "Raise max_tokens, or ask for a shorter answer."
        )

    def _empty(self, answer: str | None, *, is_whole: bool) -> str:
        if self.reasoned or answer != self.text:
            return "The model reasoned but gave no answer. Raise max_tokens, or ask for an answer."
        if is_whole:
            return (
                f"The server's answer is empty (finish: {self.reason!r}). Ask again, or set "
                "allow_empty=True where no text is an answer."
            )
        return f"The server's answer is incomplete (finish: {self.reason!r})."


def no_answer(error: str, attempts: int) -> Answer:
    """An error in place of an answer."""
    return Answer(None, Finish.ERROR, error, attempts=attempts)


def text_of(content: object) -> str | None:
    """Text as it stands, or in parts, of which some may hold reasoning. Raises TypeError."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if content is None or isinstance(content, str):
        return content
    raise TypeError


def _object(said: object) -> dict[str, Any]:
    return said if isinstance(said, dict) else {}


def count(said: object) -> int:
    """A number of tokens; 0 if it is not a valid count."""
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        return 0
    is_count = 0 <= said <= _MOST_TOKENS and said == int(said)  # false of NaN and infinity
    return int(said) if is_count else 0


def _stopped(text: str, stop: tuple[str, ...]) -> str | None:
    """What stands before the first of some strings; None if none of them is there."""
    ends = [start for start in map(text.find, stop) if start >= 0]
    return text[: min(ends)] if ends else None
