"""vLLM in this process, through its offline engine: `vllm:NAME`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import exp, log
from typing import Any

from relquery.backends import schemas
from relquery.backends.base import Answers, Backend, Limits
from relquery.backends.wires.messages import to_messages
from relquery.engine.requests.labels import LabelTrie
from relquery.errors import ConfigError, MissingExtraError, ModelError, RequestError
from relquery.prompt import Answer, Finish, Prompt, Sampling

_OPEN = 4_096
"""Requests that vLLM has at once; it takes them in the order given."""
_TOKENIZED = 256
"""Prompts that are tokenized at once, on all cores."""
_SEEDS = 1 << 63
_DEFAULTS: Mapping[str, Any] = {
    "enable_prefix_caching": True,
    # Otherwise a small model may fill its answer with blanks between brackets.
    "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
}
_FINISHES = {"stop": Finish.STOP, "length": Finish.LENGTH}


class InProcessBackend(Backend):
    """A model that vLLM serves in this process.

    model: a Hugging Face name or a folder. options: of vLLM's `LLM`, e.g. tensor_parallel_size.
    Raises MissingExtraError without vLLM, ConfigError for what it refuses, and ModelError for a
    model that does not exist.
    """

    def __init__(self, model: str, **options: Any) -> None:
        try:
            from vllm import LLM
        except ImportError as error:
            raise MissingExtraError(f"The model 'vllm:{model}'", "vllm") from error
        try:
            self._llm = LLM(model=model, **{**_DEFAULTS, **options})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"vLLM cannot open {model!r}: {error}") from error
        except OSError as error:
            raise ModelError(
                f"vLLM finds no model {model!r}. Give the name of a Hugging Face repository, or a "
                f"folder with config.json: {error}"
            ) from error
        self._name = f"vllm:{model}"
        self._tokenizer = self._llm.get_tokenizer()
        self._numbers = count()

    @property
    def name(self) -> str:
        """`vllm:MODEL`."""
        return self._name

    @property
    def limits(self) -> Limits:
        return Limits(context=int(self._llm.llm_engine.model_config.max_model_len))

    def check(self, sampling: Sampling) -> None:
        sampling.check_common()
        if sampling.logprobs is not None:
            raise ConfigError(
                "logprobs is given; a vLLM model gives none. Leave it out, or use the engine."
            )
        if sampling.labels and sampling.temperature > 0:
            raise ConfigError(
                f"temperature is {sampling.temperature} and labels are given; a vLLM model weighs "
                "labels and takes the likeliest. Leave the temperature at 0."
            )
        if sampling.seed is not None and not -_SEEDS <= sampling.seed < _SEEDS:
            raise ConfigError(f"seed is {sampling.seed}; it must have 64 bits for a vLLM model.")
        if sampling.schema is not None:
            schemas.check(sampling.schema)
        from vllm.exceptions import VLLMValidationError

        try:
            _params(sampling)
        except (VLLMValidationError, ValueError) as error:
            raise ConfigError(f"vLLM refuses these settings: {error}") from error

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend. The whole call goes to vLLM, in the order given."""
        self.check(sampling)
        return _Asking(self._llm, self._tokenizer, self._numbers, prompts, sampling).answers()

    def close(self) -> None:
        """Free the engine."""
        engine = self._llm.llm_engine.engine_core
        engine.shutdown()


@dataclass(slots=True)
class _Asked:
    """A request. prompt: its tokens. branch: of the labels that it weighs; None for an answer."""

    at: int
    prompt: list[int]
    branch: int | None = None


@dataclass(slots=True)
class _Weighed:
    """Knowledge about the labels for one prompt: log-probabilities by branch."""

    logs: dict[int, tuple[float, ...]] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(slots=True)
class _Asking:
    """The requests of one call while vLLM serves them.

    trie: of the labels, if there are any. schema: of the answers, as vLLM's grammar reads it.
    """

    llm: Any
    tokenizer: Any
    numbers: Iterator[int]
    prompts: Sequence[Prompt]
    sampling: Sampling
    trie: LabelTrie | None = None
    schema: str | None = None
    open: dict[str, _Asked] = field(default_factory=dict)
    weighed: dict[int, _Weighed] = field(default_factory=dict)

    def answers(self) -> Answers:
        """(index, answer) as they come. Closing this cancels what is open."""
        if self.sampling.labels:
            self.trie = self._trie()
        if self.sampling.schema is not None:
            self.schema = schemas.followed(self.sampling.schema)
        engine, waiting = self.llm.llm_engine, range(len(self.prompts))
        try:
            while waiting or self.open:
                while waiting and len(self.open) < _OPEN:
                    some = waiting[: min(_TOKENIZED, _OPEN - len(self.open))]
                    waiting = waiting[len(some) :]
                    yield from self._begin(some)
                for output in engine.step():
                    if not output.finished:
                        continue
                    asked = self.open.pop(output.request_id)
                    answer = self._take(asked, output)
                    if answer is not None:
                        yield asked.at, answer
        finally:
            if self.open:
                engine.abort_request([*self.open])

    def _begin(self, numbers: Sequence[int]) -> Answers:
        """Hand prompts to vLLM. (index, answer) of those it refuses; the answer says why."""
        from vllm.exceptions import VLLMValidationError

        texts = {}
        for index in numbers:
            try:
                texts[index] = self._text(self.prompts[index])
            except (RequestError, ValueError) as error:
                yield index, Answer(None, Finish.ERROR, str(error))
        tokens = self._encoded([*texts.values()], special=not self._templated)
        for index, prompt in zip(texts, tokens, strict=True):
            try:
                self._add(_Asked(index, prompt, None if self.trie is None else 0))
            except (ValueError, VLLMValidationError) as error:
                yield index, Answer(None, Finish.ERROR, str(error))

    def _add(self, asked: _Asked) -> None:
        prompt, trie = asked.prompt, self.trie
        if trie is not None and asked.branch is not None:
            prompt = [*prompt, *self._prefix(trie, asked.branch)]
        number = f"relquery-{next(self.numbers)}"
        self.llm.llm_engine.add_request(number, {"prompt_token_ids": prompt}, self._params(asked))
        self.open[number] = asked

    def _params(self, asked: _Asked) -> Any:
        if self.trie is not None and asked.branch is not None:
            from vllm import SamplingParams
            from vllm.sampling_params import RequestOutputKind

            allowed = list(self.trie.branches[asked.branch].allowed)
            return SamplingParams(
                temperature=0.0,
                max_tokens=1,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                allowed_token_ids=allowed,
                logprob_token_ids=allowed,
            )
        return _params(self.sampling, self.schema)

    def _take(self, asked: _Asked, output: Any) -> Answer | None:
        """The answer to a prompt; None if labels remain to be weighed for it."""
        given, cached = output.outputs[0], int(output.num_cached_tokens or 0)
        prompt_tokens = len(output.prompt_token_ids)
        if self.trie is not None and asked.branch is not None:
            return self._weigh(asked, given, prompt_tokens, cached)
        finish = _FINISHES.get(given.finish_reason, Finish.ERROR)
        return Answer(
            given.text,
            finish,
            None if finish is not Finish.ERROR else "vLLM ended the request without an answer.",
            prompt_tokens=prompt_tokens,
            cached_tokens=cached,
            output_tokens=len(given.token_ids),
            tokens=tuple(given.token_ids),
        )

    def _weigh(self, asked: _Asked, given: Any, prompt_tokens: int, cached: int) -> Answer | None:
        """Take in what the tokens after a branch weigh, and go on where that is needed."""
        assert self.trie is not None
        assert asked.branch is not None
        known = self.weighed.setdefault(asked.at, _Weighed())
        if asked.branch == 0:
            known.prompt_tokens, known.cached_tokens = prompt_tokens, cached
        allowed, weighed = self.trie.branches[asked.branch].allowed, given.logprobs[0]
        known.logs[asked.branch] = _normalized([float(weighed[token].logprob) for token in allowed])
        if self.sampling.scored:
            missing = set(range(len(self.trie.branches))) - known.logs.keys()
        else:
            missing = self._next(self.trie, known.logs)
        if missing:
            self._add(_Asked(asked.at, asked.prompt, min(missing)))
            return None
        del self.weighed[asked.at]
        empty = {index: () for index in range(len(self.trie.branches)) if index not in known.logs}
        logs = [(known.logs | empty)[index] for index in range(len(self.trie.branches))]
        tokens = self.trie.greedy(logs)
        labels = self.sampling.labels
        scores = None
        if self.sampling.scored:
            scores = dict(zip(labels, self.trie.log_probabilities(logs), strict=True))
        return Answer(
            labels[self.trie.labels.index(tokens)],
            Finish.STOP,
            prompt_tokens=known.prompt_tokens,
            cached_tokens=known.cached_tokens,
            output_tokens=1,
            scores=scores,
        )

    def _next(self, trie: LabelTrie, logs: dict[int, tuple[float, ...]]) -> set[int]:
        """The branch that a greedy decoder comes to next, if it is not weighed yet."""
        branch = trie.reached(logs)
        return {branch} if branch is not None else set()

    def _prefix(self, trie: LabelTrie, branch: int) -> list[int]:
        """The tokens from the prompt to a branch."""
        prefix: list[int] = []
        node: int | None = branch
        while node is not None:
            prefix = [*trie.branches[node].stretch, *prefix]
            node = trie.branches[node].above
        return prefix

    def _trie(self) -> LabelTrie:
        labels = [tuple(tokens) for tokens in self._encoded([*self.sampling.labels])]
        end = self.tokenizer.eos_token_id
        return LabelTrie(labels, () if end is None else (end,))

    @property
    def _templated(self) -> bool:
        return bool(getattr(self.tokenizer, "chat_template", None))

    def _text(self, prompt: Prompt) -> str:
        """A prompt as the model's template has it. Raises RequestError."""
        messages = to_messages(prompt)
        if self._templated:
            text: str = self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False
            )
            return text
        return "".join(f"{message['content']}\n\n" for message in messages)

    def _encoded(self, texts: list[str], *, special: bool = False) -> list[list[int]]:
        """The tokens of each text. special: with those that a prompt begins with."""
        if not texts:
            return []
        encoded: list[list[int]] = self.tokenizer(
            texts, add_special_tokens=special, return_attention_mask=False
        )["input_ids"]
        return encoded


def _params(sampling: Sampling, schema: str | None = None) -> Any:
    """The sampling as vLLM's parameters. schema: of the answers, as its grammar reads it."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        stop=list(sampling.stop),
        max_tokens=sampling.max_tokens,
        **_adjusted(sampling),
        output_kind=RequestOutputKind.FINAL_ONLY,
        structured_outputs=None if schema is None else StructuredOutputsParams(json=schema),
    )


def _adjusted(sampling: Sampling) -> dict[str, Any]:
    """vLLM has the same names."""
    settings = {} if sampling.adjustments is None else sampling.adjustments.given
    return settings | (
        {"logit_bias": dict(settings["logit_bias"])} if "logit_bias" in settings else {}
    )


def _normalized(logs: Sequence[float]) -> tuple[float, ...]:
    """Log-probabilities among the tokens given."""
    most = max(logs)
    total = most + log(sum(exp(log - most) for log in logs))
    return tuple(log - total for log in logs)
