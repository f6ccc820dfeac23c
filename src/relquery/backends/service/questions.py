"""What may be asked of a backend between two steps, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.service.serving import Facts
from relquery.backends.service.state import state_of
from relquery.prompt import Prompt, Sampling


def answer_of(backend: EmbeddedBackend, question: str, given: Sequence[Any]) -> Any:
    """What a question of QUESTIONS gives. Raises what the backend raises."""
    return QUESTIONS[question](backend, *given)


def _facts(backend: EmbeddedBackend) -> Facts:
    return Facts(
        backend.name,
        backend.limits.context or 0,
        backend.config.cache_tokens,
        backend.limits.block_tokens or 0,
        backend.config.policy,
    )


def _tokens(backend: EmbeddedBackend, prompt: Prompt) -> list[int]:
    """Token ids of a prompt as the model reads it."""
    return [int(token) for run in backend.runs(prompt) for token in run]


def _length(backend: EmbeddedBackend, prompt: Prompt) -> int:
    """Tokens of a prompt's own text, however many they are."""
    return sum(map(len, backend.runs(prompt)))


def _count(backend: EmbeddedBackend, prompts: Sequence[Prompt]) -> list[int]:
    """Tokens of each prompt; 0 for one that cannot be served."""
    return backend.prompt_tokens(prompts, Sampling(max_tokens=1))


QUESTIONS: dict[str, Callable[..., Any]] = {
    "facts": _facts,
    "state": state_of,
    "tokens": _tokens,
    "count": _count,
    "length": _length,
    "known_as": EmbeddedBackend.known_as,
    "check": EmbeddedBackend.check,
    "one_pass": EmbeddedBackend.one_pass,
    "prompt_tokens": EmbeddedBackend.prompt_tokens,
    "predict": EmbeddedBackend.predict,
    "runs": EmbeddedBackend.runs,
    "share": EmbeddedBackend.share,
    "inspect": EmbeddedBackend.inspect,
    "token_bytes": EmbeddedBackend.token_bytes,
    "spell": EmbeddedBackend.spell,
}
