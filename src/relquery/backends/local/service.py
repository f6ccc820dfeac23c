"""The embedded engine as a service: relQueries from any thread, served as a policy says.

One thread alone tokenises and runs the engine's loop. Others leave commands in its inbox, which it
takes in between steps, and get answers in their sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import RLock, Thread, current_thread
from traceback import clear_frames
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import finalize

from relquery.backends.arguments import prompts_of, texts_of
from relquery.backends.base import Backend
from relquery.backends.local.client import EngineClient, Job
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.host import CLOSED, Sink, Submission, heard
from relquery.backends.local.open import load_backend
from relquery.backends.scoring import Scores
from relquery.config import PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.requests.declared import Declared
from relquery.engine.requests.labels import Normalization
from relquery.errors import ConfigError, unknown
from relquery.prompt import Prompt, Sampling

__all__ = ["Engine", "Job"]

T = TypeVar("T")
_LONGEST = 0.1  # seconds in which commands are taken before the next step


class Engine:
    """A server of relQueries as they come, from any thread; a policy says which goes first.

    model: "demo", a Hugging Face name or folder, "random:layers=8,hidden=256", or
        "simulated:a100-opt13b" (see backends.local.open). "BASE+ADAPTER": with an adapter.
    policy, starvation, aging, weights, tail: see EngineConfig. cost: see load_backend.
    options: other fields of EngineConfig, and dtype, device, tokenizer, memory (see load_backend).
        adapters: a dict from names to folders or Hugging Face names; calls choose among them.
        With a budget of memory, or max_input="auto", a profile run is made, and it is printed how
        long an input fits and why; `sizing` holds it. `runs_in` says which forward pass runs.

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
        tail: float | None = None,
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
            tail=tail,
            cost=cost,
            **options,
        )
        self.name, self.policy, self.cost = backend.name, policy, backend.cost
        self.runs_in, self.sizing = backend.runs_in, backend.sizing
        if self.sizing is not None:
            print(self.sizing)
        self._model, self._adapters = model, backend.adapters
        self._facts, self._worker = backend.facts, Worker(backend)
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
        labels: Sequence[str] | None = None,
        schema: str | None = None,
        logprobs: int | None = None,
        tenant: str = "",
        relquery: str | None = None,
        rows: int | None = None,
        deadline: float | None = None,
        adapter: str = "",
    ) -> Job:
        """Ask all prompts as one relQuery. Returns at once; the job gives the answers.

        prompts: texts, each a user's message, or tuples of Spans. labels: where given, each
        answer is one of them, and at temperature 0 it has their `scores` if they are few and short.
        schema: the text of a JSON Schema, under which answers are valid JSON.
        logprobs: answers have the `logprobs` of their tokens, and of so many of the likeliest ones,
        0 to 20; labels then have no `scores`.
        tenant: who asks, see `weights` and `prepare`. relquery: the client's name for the relQuery;
        jobs of one tenant with the same name are one relQuery. rows: prompts of all these jobs
        together. deadline: seconds from the relQuery's first job within which its last answer is
        needed. adapter: the name of one of the engine's `adapters`; by default that of its model's
        name, if it has one. For the rest see Sampling.

        Raises ConfigError for what cannot be asked and where the engine is closed; a schema that
        the engine cannot follow breaks the job, and so does a deadline that cannot be met
        (DeadlineError).
        """
        parsed = prompts_of(prompts)
        given = () if labels is None else texts_of("labels", labels)
        if labels is not None and not given:
            raise ConfigError("labels is empty; give at least one text, or omit it.")
        sampling = Sampling(
            max_tokens,
            temperature,
            top_p,
            top_k,
            seed,
            texts_of("stop", stop),
            given,
            schema,
            logprobs=logprobs,
        )
        declared = Declared(relquery, rows, deadline)
        return self._client(tenant, adapter, declared).begin(parsed, sampling, keep=self)

    def score(
        self,
        prompts: Iterable[str | Prompt],
        labels: Sequence[str],
        *,
        normalization: Normalization = "joint",
        tenant: str = "",
        adapter: str = "",
    ) -> list[Scores]:
        """How likely each label is as the answer to each prompt; waits for all of them.

        A prompt takes one pass: all labels are weighed beside its last token, and nothing is
        decoded. Probabilities are among the labels and sum to one. labels: different texts, which
        follow the prompt as they are.

        normalization: "joint": the probability that the model, asked freely, begins its answer with
        the label, divided by the sum over the labels. "branch": the probability with which
        decoding that allows nothing but the labels draws the label, at temperature 1: each token's
        among those that some label goes on with. They differ where a label has several tokens.

        prompts, tenant, adapter: see `submit`.

        Raises ConfigError for what cannot be asked, and what breaks the step; a prompt that cannot
        be scored has its `error`.
        """
        return self._client(tenant, adapter).score(prompts, labels, normalization)

    def prepare(
        self, prompts: Iterable[str | Prompt], *, tenant: str = "", adapter: str = ""
    ) -> None:
        """Compute the states of prompts now, so that later prompts with the same spans find them.

        tenant: whose the independent spans are; by default they are registered for all. A tenant
        reads the states of no other tenant's spans, unless they are registered for all. adapter:
        that the prompts will be asked with.

        Waits. Raises RequestError for a prompt that cannot be served, and ConfigError as `submit`.
        """
        self._client(tenant, adapter).prepare(prompts_of(prompts))

    def backend(self, *, tenant: str = "", adapter: str = "") -> Backend:
        """This engine as one asker's backend, for `relquery.connect` and for span queries.

        Each of its calls is a job, served beside those of others. Closing it closes nothing. Each
        thread takes its own. adapter: see `submit`.
        """
        return self._client(tenant, adapter)

    def close(self) -> None:
        """Cancel what is open and free the model; a second time does nothing.

        Waits for the step that runs.
        """
        self._worker.stop()

    def _client(self, tenant: str, adapter: str, declared: Declared | None = None) -> EngineClient:
        if not isinstance(tenant, str):
            raise ConfigError(f"tenant is {tenant!r}; it must be a string.")
        if adapter not in ("", *self._adapters):
            model = f"model '{self._model}'"
            raise ConfigError(unknown("adapter", adapter, self._adapters, of=model))
        return EngineClient(self._worker, self._facts, tenant, declared, adapter)

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


def nothing() -> None:
    """Does nothing."""


class Worker:
    """A thread that serves jobs with an engine until it is told to stop, and then closes it. See
    EngineHost.

    engine: used on the thread alone. clock: its clock. closed: whether it takes no commands any
    more. turned: called on the thread after each turn, when sinks have what the step gave.
    """

    def __init__(self, engine: EmbeddedBackend, turned: Callable[[], None] = nothing) -> None:
        self.clock, self.closed = engine.clock, False
        self.engine, self._batches, self._turned = engine, engine.batches, turned
        self._inbox: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._stopping = False
        # A signal's handler may close an engine in the midst of a call that its thread makes.
        self._lock = RLock()
        self._thread = Thread(target=self._run, name="relquery-engine", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Jobs that are open."""
        return len(self._batches.jobs)

    def post(self, command: Callable[[], object]) -> bool:
        """Have the thread run a command before its next step; False if it takes none any more."""
        with self._lock:
            if not self.closed:
                self._inbox.put(command)
            return not self.closed

    def submit(self, submission: Submission, sink: Sink) -> bool:
        arrival = self.clock.now()

        def begin() -> None:
            try:
                self.engine.submit(submission, sink, arrival)
            except BaseException as error:  # what breaks on the way breaks this job alone
                sink.end(None, error)

        return self.post(begin)

    def cancel(self, sink: Sink) -> bool:
        return self.call(lambda: self.engine.cancel(sink), False)

    def ask(self, question: str, *given: Any) -> Any:
        closed = object()
        reply = self.call(lambda: self.engine.ask(question, *given), closed)
        if reply is closed:
            raise ConfigError(CLOSED)
        return reply

    def call(self, question: Callable[[], T], otherwise: T) -> T:
        """What a function gives on the thread, or `otherwise` where it takes no commands.

        Raises what the function raises.
        """
        reply: SimpleQueue[tuple[T, BaseException | None]] = SimpleQueue()

        def command() -> None:
            try:
                reply.put((question(), None))
            except BaseException as error:
                reply.put((otherwise, error))

        if not self.post(command):
            return otherwise
        value, error = self.hear(reply, None)
        if error is not None:
            raise error
        return value

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        return heard(bell, until, self.clock, self._thread.is_alive)

    def stop(self) -> None:
        """Have the thread cancel what is open and end. Waits for the step that runs."""
        with self._lock:
            self.closed = True
            self._inbox.put(self._quit)
        # The last reference to an engine may be dropped on its own thread.
        if current_thread() is not self._thread:
            self._thread.join()

    # What follows runs on the thread.

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except BaseException as error:
                self._fail(error)
        self.engine.close()  # which cancels what is open
        self._turned()

    def _turn(self) -> None:
        """Take in commands, waiting for them if no job is open; then run a step."""
        while not self._batches.jobs and not self._stopping:
            self._inbox.get()()
            self._turned()
        # Those that are there, and no more: who asks again and again would hold up the steps. So
        # would many that take long, such as schemas that are new.
        until = self.clock.now() + _LONGEST
        for _ in range(self._inbox.qsize()):
            self._inbox.get()()
            if self.clock.now() > until:
                break
        if self._batches.jobs and not self._stopping:
            self._batches.step()
        self._turned()

    def _quit(self) -> None:
        self._stopping = True

    def _fail(self, error: BaseException) -> None:
        """End all open jobs with an error; those that come later are served."""
        # The error lives as long as a job that somebody keeps; what its frames hold, all that the
        # step had in memory, would live as long.
        clear_frames(error.__traceback__)
        try:
            self._batches.fail(error)
        finally:
            self._turned()
