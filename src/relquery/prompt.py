"""The interface between planning (sql, table, ir) and execution (engine, model).

A planner says *what* to ask: a `Prompt` and a `Sampling`. A backend returns the result: an
`Answer`. Neither side knows more about the other.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from itertools import accumulate
from math import inf
from sys import float_info
from typing import Any

from relquery.errors import ConfigError
from relquery.tools import ToolCall, ToolResult, Tools, ToolUse


class Role(Enum):
    """The role of a span in a chat template.

    TOOL: of what a call returned. NONE: nobody's. A prompt of such spans alone is what the model
    reads, without the template.
    """

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    NONE = "none"


MOST_LOGPROBS = 20
"""Likeliest tokens whose log-probabilities can be asked for."""
MOST_SCHEMA, MOST_NESTED = 120_000, 100
"""Characters of a schema, and levels of brackets in it."""
_FORMS = ("schema", "grammar", "labels", "tools")
"""Settings that say what form an answer has, of which one may be given."""
_NO_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|[^][{}"]+', re.DOTALL)
SPEAKERS = (Role.SYSTEM, Role.USER, Role.ASSISTANT)


class Reuse(Enum):
    """The extent to which a span's attention states may be reused.

    PREFIX: the span attends to everything before it; reused if everything before it is the same.
    INDEPENDENT: the span attends only to itself; reused at any position.
    """

    PREFIX = "prefix"
    INDEPENDENT = "independent"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a prompt."""

    content: str | tuple[int, ...] | Exchange | Nest | Blank | Tools | ToolCall | ToolResult
    """Text; existing token ids; an exchange or a nest, which are independent; a blank; or functions
    that may be called, a call, or what one returned (see relquery.tools)."""
    role: Role = Role.USER
    reuse: Reuse = Reuse.PREFIX
    position: int | None = None
    """Position id of the first token, in a nest counted from where the nest begins; None means
    directly after what precedes it. What a span attends to does not depend on positions."""
    begins: bool = False
    """Whether a message begins with it. If False, consecutive spans of one role are parts of one
    message; a span of another role always begins a message."""
    keep: int = 0
    """The higher, the longer the states of an independent span, or of a prompt up to the end of a
    PREFIX span, stay in the cache once nobody uses them; 0 as long as those of other text."""
    keep_for: float = field(default=inf, repr=False)
    """Seconds after their last use in which `keep` counts, for a PREFIX span."""
    open: bool = field(default=False, repr=False)
    """Whether the answer continues the message that ends with this span, the prompt's last."""
    raw: bool = field(default=False, repr=False)
    """Whether a text names special tokens, such as "<s>", and begins with those that a model is
    trained to read first: a prompt of this span of no role alone, as vLLM reads plain text."""
    shares: bool = field(default=False, repr=False)
    """Whether prompts that are equal up to its end are best served by one machine, where a provider
    has several."""


Prompt = tuple[Span, ...]
Message = tuple[Role, list[Span]]


def messages(prompt: Prompt) -> list[Message]:
    """The spans of each message. A message begins if the role changes or a span `begins` one."""
    merged: list[Message] = []
    for span in prompt:
        if not merged or span.begins or merged[-1][0] is not span.role:
            merged.append((span.role, []))
        merged[-1][1].append(span)
    return merged


@dataclass(frozen=True, slots=True)
class Exchange:
    """An inner generation as it is in the cache: a whole prompt, and the tokens of its answer."""

    prompt: Prompt
    output: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """An independent span that contains independent spans (paper 002: nested parentheses)."""

    spans: Prompt
    """Its parts. A PREFIX part attends to everything before it in the nest, including the content
    of independent parts; an INDEPENDENT part attends only to itself. A nest has no template: its
    parts belong to one message."""


@dataclass(frozen=True, slots=True)
class Blank:
    """Tokens in a nest that stand for text that is not known yet, such as an argument.

    Only what follows them in the nest itself attends to them (paper 001, section 3.3).
    """

    tokens: tuple[int, ...] | int
    """Their ids, or how many times the tokenizer's unknown token stands there."""


@dataclass(frozen=True, slots=True)
class Adjustments:
    """Changes of logits before a token is chosen, in vLLM's words and order.

    First `logit_bias` is added, then the penalties apply, then temperature, top_k, top_p and
    `min_p`.
    """

    frequency_penalty: float = 0.0
    """Taken from a token's logit for each time that it is in the answer so far."""
    presence_penalty: float = 0.0
    """Taken from a token's logit once it is in the answer."""
    repetition_penalty: float = 1.0
    """Divides a positive logit, and multiplies a negative one, of each token that is in the prompt
    or in the answer: from 0.001, below which logits would overflow, to 1000."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, what is added to its logit), each id once."""
    min_p: float = 0.0
    """Tokens less likely than this share of the likeliest one are not drawn."""
    min_tokens: int = 0
    """Before so many tokens, no answer ends by itself or by a stop string."""
    ignore_eos: bool = False
    """Whether answers go on after a token that ends them otherwise."""

    def __post_init__(self) -> None:
        for name, (low, high) in _ADJUSTED.items():
            value = getattr(self, name)
            is_whole = name == "min_tokens"
            if isinstance(value, bool) or not isinstance(value, int if is_whole else int | float):
                raise ConfigError(f"{name} is {value!r}; it must be a number.")
            if not low <= value <= high:
                raise ConfigError(f"{name} is {value}; it must be from {low:g} to {high:g}.")
        if not isinstance(self.ignore_eos, bool):
            raise ConfigError(f"ignore_eos is {self.ignore_eos!r}; it must be True or False.")
        given = self.logit_bias.items() if isinstance(self.logit_bias, Mapping) else self.logit_bias
        object.__setattr__(self, "logit_bias", tuple(sorted((int(a), float(b)) for a, b in given)))
        for token, bias in self.logit_bias:
            if token < 0 or not -100 <= bias <= 100:
                raise ConfigError(
                    f"logit_bias of token {token} is {bias:g}; it must be from -100 to 100, for a "
                    "token of the model."
                )
        if len(dict(self.logit_bias)) < len(self.logit_bias):
            raise ConfigError("logit_bias has a token twice. Give each once.")

    @property
    def given(self) -> dict[str, Any]:
        """Those that change anything, by name."""
        values = {
            setting.name: (getattr(self, setting.name), setting.default) for setting in fields(self)
        }
        return {name: value for name, (value, default) in values.items() if value != default}


_ADJUSTED = {
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.001, 1000.0),
    "min_p": (0.0, 1.0),
    "min_tokens": (0, 1 << 31),
}
"""The least and the greatest value."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of an answer: its form, its length, and how its tokens are chosen."""

    max_tokens: int = 256
    """Upper bound of the answer; an answer cut by it is an error, not a value."""
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    """1 keeps all tokens."""
    top_k: int = 0
    """0 keeps all tokens."""
    seed: int | None = None
    """Makes sampled answers repeat; None draws a fresh seed per request."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer and are cut from it."""
    labels: tuple[str, ...] = ()
    """If not empty, the answer is one of these texts."""
    schema: str | None = None
    """The text of a JSON Schema; the answer is JSON that is valid under it. An object's keys come
    in the order of its `properties`, all of them, and no others."""
    scored: bool = False
    """Answers say how likely each label is (`Answer.scores`); needs labels and temperature 0."""
    logprobs: int | None = None
    """Answers say how likely each of their tokens was, and as many of the likeliest tokens at its
    place, 0 to 20 (`Answer.logprobs`); None for nothing. It changes no answer."""
    adjustments: Adjustments | None = None
    """Changes of logits before a token is chosen; None for nothing."""
    told: bool = field(default=False, repr=False)
    """Whether the prompt itself says what the labels are. Where it takes more tokens to hold the
    model to them, a backend may then ask by the prompt alone, as long as labels come."""
    grammar: str | None = None
    """Grammar of the answer, in llguidance's Lark syntax."""
    tools: ToolUse | None = None
    """Functions that the answer may call, in the form of the model's chat template."""
    prompt_logprobs: int | None = None
    """As `logprobs`, of the prompt's tokens (`Answer.prompt_logprobs`), all of which are then
    computed: nothing comes from the cache, and no span of the prompt is independent."""

    def __post_init__(self) -> None:
        self._check_adjustments()
        self._check_numbers()
        self._check_texts()
        self._check_scored()
        self._check_forms()
        if self.schema is not None:
            self._check_schema(self.schema)

    def _check_adjustments(self) -> None:
        given = self.adjustments
        if isinstance(given, Mapping):
            given = Adjustments(**given)
        if given is None or not given.given:
            object.__setattr__(self, "adjustments", None)
            return
        object.__setattr__(self, "adjustments", given)
        name = next(iter(given.given))
        if self.labels:
            raise ConfigError(f"labels and {name} are both given; give only one of them.")
        form = next((each for each in _FORMS if getattr(self, each)), None)
        if form is not None and (given.min_tokens or given.ignore_eos):
            raise ConfigError(
                f"{form} is given with min_tokens or ignore_eos; an answer of a form ends with it. "
                "Leave them out."
            )
        if given.min_tokens > self.max_tokens:
            raise ConfigError(
                f"min_tokens is {given.min_tokens}, more than max_tokens, which is "
                f"{self.max_tokens}. Lower it."
            )

    def check_common(self) -> None:
        """Raises ConfigError for forms of answers that only the engine on this machine follows."""
        for name in ("grammar", "tools", "prompt_logprobs"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} is given, which only the engine on this machine follows. Leave it "
                    "out, or ask a model on this machine."
                )

    def _check_forms(self) -> None:
        given = [name for name in _FORMS if getattr(self, name) not in (None, ())]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} are both given; give only one of them.")
        if self.stop and self.schema is not None:
            raise ConfigError("schema and stop are both given; give only one of them.")
        if self.tools is not None:
            for function in self.tools.functions:
                _check_size(function.parameters)
        if self.grammar is not None and len(self.grammar) > MOST_SCHEMA:
            raise ConfigError(
                f"grammar has {len(self.grammar):,} characters; the most is {MOST_SCHEMA:,}."
            )
        if self.grammar is not None and not _is_unicode(self.grammar):
            raise ConfigError("grammar has halves of characters, which are no Unicode text.")

    def _check_texts(self) -> None:
        for name in ("stop", "labels"):
            texts = getattr(self, name)
            are_many = isinstance(texts, Iterable) and not isinstance(texts, str)
            if not (are_many and all(isinstance(text, str) for text in texts)):
                raise ConfigError(f"{name} is {texts!r}; it must be a list of strings.")
            for text in texts:
                if not _is_unicode(text):
                    raise ConfigError(f"{name} contains {text!r}, which is not valid Unicode text.")
            object.__setattr__(self, name, tuple(texts))
        if "" in self.stop:
            raise ConfigError(
                "stop contains an empty string, which would end every answer at once. Remove it."
            )
        if "" in self.labels:
            raise ConfigError("A label is an empty string; labels must not be empty. Remove it.")
        for label, count in Counter(self.labels).most_common(1):
            if count > 1:
                raise ConfigError(f"labels contains {label!r} {count} times; give each label once.")

    def _check_scored(self) -> None:
        if not isinstance(self.scored, bool):
            raise ConfigError(f"scored is {self.scored!r}; it must be True or False.")
        if self.scored and not self.labels:
            raise ConfigError("scored is given without labels, which it weighs. Give labels.")
        if self.scored and self.temperature > 0:
            raise ConfigError(
                f"scored is given with temperature {self.temperature}; labels are weighed, not "
                "drawn. Leave the temperature at 0."
            )
        told = next((setting for setting in _LOGPROBS if getattr(self, setting) is not None), None)
        if self.scored and told is not None:
            raise ConfigError(
                f"scored and {told} are both given; labels that are weighed are not drawn token "
                "by token. Give only one of them."
            )

    def _check_schema(self, schema: str) -> None:
        if isinstance(schema, str) and schema.lstrip().startswith("{"):
            _check_size(schema)
        try:
            is_object = isinstance(json.loads(schema), dict)
        except (ValueError, TypeError, RecursionError):
            is_object = False
        if not is_object or not isinstance(schema, str):
            raise ConfigError(
                f"schema is {_beginning(schema)}; it must be the JSON text of an object, such as "
                '\'{"type": "boolean"}\'. json.dumps turns a dict into one.'
            )

    def _check_numbers(self) -> None:
        for name, kinds in _NUMBERS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise ConfigError(f"{name} is {value!r}; it must be a number.")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}; it must be at least 1.")
        if not 0 <= self.temperature <= float_info.max:
            raise ConfigError(
                f"temperature is {self.temperature}; it must be finite and not negative."
            )
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}; it must be in (0, 1].")
        if self.top_k < 0:
            raise ConfigError(f"top_k is {self.top_k}; it must not be negative (0 keeps all).")
        for name in _LOGPROBS:
            count = getattr(self, name)
            if count is not None and not 0 <= count <= MOST_LOGPROBS:
                raise ConfigError(
                    f"{name} is {count}; it must be from 0 to {MOST_LOGPROBS}, or None for no "
                    "log-probabilities."
                )


@dataclass(frozen=True, slots=True)
class Compared(Sampling):
    """Sampling of answers that are only compared with some texts, and otherwise not read."""

    texts: tuple[str, ...] = ()
    """The compared texts. A backend may end an answer as soon as it cannot equal any of them
    (Finish.DECIDED)."""

    @classmethod
    def by(cls, sampling: Sampling, texts: tuple[str, ...]) -> Compared:
        """The same settings, for answers that are compared with these texts."""
        return cls(**_settings(sampling), texts=texts)

    @property
    def whole(self) -> Sampling:
        """The same settings, for answers that are read."""
        return Sampling(**_settings(self))


def _is_unicode(text: str) -> bool:
    """Whether a text has no halves of characters."""
    return text.isascii() or text.encode(errors="ignore").decode() == text


def _check_size(schema: str) -> None:
    """Raises ConfigError for a schema that would take long to read, or too many nested calls."""
    if len(schema) > MOST_SCHEMA:
        raise ConfigError(
            f"schema has {len(schema):,} characters; the most is {MOST_SCHEMA:,}. Ask for less."
        )
    brackets = _NO_BRACKETS.sub("", schema)
    depth = max(accumulate((1 if each in "[{" else -1 for each in brackets), initial=0))
    if depth > MOST_NESTED:
        raise ConfigError(
            f"schema is nested {depth:,} levels deep; the most is {MOST_NESTED}. Ask for less, or "
            "use $ref."
        )


def _beginning(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _settings(sampling: Sampling) -> dict[str, Any]:
    return {setting.name: getattr(sampling, setting.name) for setting in fields(Sampling)}


_NUMBERS: dict[str, tuple[type, ...]] = {
    "max_tokens": (int,),
    "top_k": (int,),
    "temperature": (int, float),
    "top_p": (int, float),
    "seed": (int, type(None)),
    "logprobs": (int, type(None)),
    "prompt_logprobs": (int, type(None)),
}
_LOGPROBS = ("logprobs", "prompt_logprobs")


class Finish(Enum):
    """The reason why an answer ended."""

    STOP = "stop"  # end-of-sequence token, stop string, or a complete label
    DECIDED = "decided"  # cannot equal any compared text; only its beginning is given
    LENGTH = "length"  # cut by max_tokens or by the model's context
    ERROR = "error"  # could not be served
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of a token of an answer or a prompt, given all before it.

    The distribution is the model's own: the log-softmax of its logits over the whole vocabulary, in
    float64, before temperature, top_p and top_k, and before labels or a schema restrict it. So a
    token that these allow may have a small log-probability, and need not be in `top`.
    """

    token: int
    """Its id."""
    logprob: float
    """Its natural log-probability."""
    top: tuple[tuple[int, float], ...] = ()
    """(id, log-probability) of the likeliest tokens at its place, likeliest first, of equally
    likely ones the smaller id first."""
    rank: int = field(default=1, compare=False)
    """1 for a token that none is likelier than, and one more for each that is."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a backend for one prompt."""

    text: str | None
    """The answer, even if it was cut off (`finish` is LENGTH); None if there is none."""
    finish: Finish
    error: str | None = None
    """Why there is no complete answer, else None."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose attention states came from the cache."""
    output_tokens: int = 0
    attempts: int = 1
    tokens: tuple[int, ...] | None = None
    """Ids of the answer, which continue the prompt's own; None where they are not known."""
    scores: Mapping[str, float] | None = field(default=None, hash=False)
    """Log-probability of each of `Sampling.labels` among all labels, normalised as requested; by
    default as drawn by decoding restricted to the labels at temperature 1. None if labels were not
    weighed."""
    first_token: float | None = field(default=None, compare=False)
    """Seconds from when the prompt was handed in until its first token was there; None where that
    is not measured."""
    logprobs: tuple[TokenLogprob, ...] | None = None
    """Of each of `tokens`, as `Sampling.logprobs` asks for; None if it asks for none."""
    stopped_by: str | None = None
    """The string of `Sampling.stop` that ended the answer; None if none did."""
    kept: tuple[int, ...] = ()
    """Prompt tokens up to the end of each PREFIX span that is to be kept, in their order; empty
    where it is not known."""
    written_tokens: int = 0
    """Prompt tokens that a provider stored in its cache, where it bills that."""
    written_1h_tokens: int = 0
    """Those of `written_tokens` that the provider keeps for an hour, which costs more."""
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    """Of each token of the prompt, as `Sampling.prompt_logprobs` asks for. The first, which nothing
    comes before, has the log-probability 0 and no others."""

    def with_cost_of(self, first: Answer) -> Answer:
        """This answer, with the tokens that another one to its prompt took before it."""
        return replace(
            self,
            prompt_tokens=self.prompt_tokens + first.prompt_tokens,
            cached_tokens=self.cached_tokens + first.cached_tokens,
            output_tokens=self.output_tokens + first.output_tokens,
            written_tokens=self.written_tokens + first.written_tokens,
            written_1h_tokens=self.written_1h_tokens + first.written_1h_tokens,
        )
