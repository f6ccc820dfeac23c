"""The embedded engine as a service: relQueries from any thread, served as a policy says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import finalize

from relquery.backends.delivery import Delivery
from relquery.backends.embedded import load_backend
from relquery.backends.job import Job
from relquery.backends.worker import Worker
from relquery.config import PolicyName
from relquery.engine.cost import LinearCost
from relquery.errors import ConfigError
from relquery.prompt import Exchange, Prompt, Reuse, Role, Sampling, Span

__all__ = ["Engine", "Job"]


class Engine:
    """Serves relQueries as they come, from any thread; a policy says which goes first.

    model: "demo", a Hugging Face name or folder, or "random:layers=8,hidden=256".
    policy, starvation, aging, weights: see EngineConfig. cost: see load_backend.
    options: other fields of EngineConfig, and dtype, device, tokenizer.

    A context manager. Raises ConfigError, ModelError and MissingExtraError.
    """

    def __init__(
        self,
        model: str,
        *,
        policy: PolicyName = "shortest",
        starvation: float | None = None,
        aging: float = 0.0,
        weights: Mapping[str, float] | None = None,
        cost: LinearCost | str | Path | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(model, str) or model.startswith("openai:"):
            raise ConfigError(
                f"model is {model!r}. An engine runs a model on this machine: give its name or "
                "folder, e.g. 'demo'. For a provider's model use relquery.connect."
            )
        backend = load_backend(
            model,
            policy=policy,
            starvation=starvation,
            aging=aging,
            weights={} if weights is None else weights,
            cost=cost,
            **options,
        )
        self.name, self.policy, self.cost = backend.name, policy, backend.cost
        self._model = model
        self._worker = Worker(backend)
        # Also where nobody closes it: when it is dropped, and at the end of the program, which a
        # thread that still computes would crash.
        finalize(self, self._worker.stop)

    def submit(
        self,
        prompts: Iterable[str | Prompt],
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int | None = None,
        stop: Sequence[str] = (),
        choices: Sequence[str] = (),
        tenant: str = "",
    ) -> Job:
        """Ask all prompts as one relQuery. Returns at once; the job gives the answers.

        prompts: texts, each a user's message, or tuples of Spans. choices: where not empty, each
        answer is one of them. tenant: who asks, see `weights`. For the rest see Sampling.

        Raises ConfigError for what cannot be asked and where the engine is closed.
        """
        found = _prompts(prompts)
        if not isinstance(tenant, str):
            raise ConfigError(f"tenant is {tenant!r}; it must be a string.")
        sampling = Sampling(
            max_tokens,
            temperature,
            top_p,
            top_k,
            seed,
            _texts("stop", stop),
            _texts("choices", choices),
        )
        worker, delivery = self._worker, Delivery(len(found), keep=self)
        arrival = worker.clock.now()
        if not worker.post(lambda: worker.begin(delivery, found, sampling, tenant, arrival)):
            raise ConfigError("The engine is closed. Open another one: relquery.Engine(model).")
        return Job(worker, delivery)

    def close(self) -> None:
        """Cancel what is open and free the model; a second time does nothing.

        Waits for the step that runs.
        """
        self._worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._worker.closed else f"{self._worker.count} open jobs"
        return f"<Engine {self._model!r}, policy {self.policy!r}, {state}>"


def _texts(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"{name} is {given!r}; it must be a list of strings.")
    texts = tuple(given)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ConfigError(f"{name} holds {text!r}; it must hold strings that are not empty.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"{name} holds {text!r}, no valid Unicode text: {error}.") from error
    return texts


def _prompts(given: Iterable[str | Prompt]) -> list[Prompt]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ConfigError(
            f"prompts is a {type(given).__name__}; it must be a list of prompts. For one prompt "
            "give a list of one: engine.submit([prompt])."
        )
    return [_prompt(index, each) for index, each in enumerate(given)]


def _prompt(index: int, given: object) -> Prompt:
    if isinstance(given, str):
        return (Span(given),)
    if not isinstance(given, (tuple, list)) or not all(isinstance(span, Span) for span in given):
        raise ConfigError(
            f"Prompt {index} is a {type(given).__name__}; it must be a string, or a tuple of Spans "
            "(relquery.prompt.Span)."
        )
    for span in given:
        if not (
            isinstance(span.content, (str, tuple, Exchange))
            and isinstance(span.role, Role)
            and isinstance(span.reuse, Reuse)
        ):
            raise ConfigError(
                f"Prompt {index} has {span!r}. A span's content is a string, a tuple of token ids "
                "or an Exchange; its role is a Role, and its reuse a Reuse."
            )
    return tuple(given)
