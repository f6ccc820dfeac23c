"""The state that a server's routes share: the engines, and the requests to them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

from fastapi import Depends, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive

import relquery.engine.requests.declared as engine
from relquery.backends.local.asking import Piece
from relquery.backends.local.host import Facts, Sink, Submission
from relquery.backends.local.state import EngineState, together
from relquery.backends.remote.link import Link
from relquery.backends.remote.process import Replied
from relquery.engine.requests.relquery import Latency
from relquery.errors import ConfigError
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.serve.auth import AdmissionController, Authenticator, Identity
from relquery.serve.bodies import DeclaredFields, declared_by
from relquery.serve.errors import HttpError, Json, as_http, stopping
from relquery.serve.metrics import Metrics
from relquery.serve.settings import ServeConfig
from relquery.serve.streaming import EventResponse, JobAnswers, ResponseForm

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class EngineHandle:
    """One engine with its model. Used in the event loop of the server."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._spelt: dict[int, bytes] = {}

    async def ask(self, question: str, *given: Any) -> Any:
        """The reply of EngineHost.ask, for which no thread waits."""
        bell = _Bell()
        number = self.link.post(bell, question, *given)
        if number is None:
            raise ConfigError("The engine is closed.")
        try:
            told = await asyncio.wrap_future(bell)
        finally:
            self.link.forget(number)
        if told.error is not None:
            raise told.error
        return told.value

    async def spell(self, tokens: Iterable[int]) -> Callable[[int], bytes]:
        """The bytes that tokens stand for, which the engine tells once."""
        if new := sorted(set(tokens) - self._spelt.keys()):
            spelt: list[bytes] = await self.ask("spell", new)
            self._spelt.update(zip(new, spelt, strict=True))
        return self._spelt.__getitem__


class _Bell(Future[Replied]):
    """A queue of replies from other threads into the event loop."""

    def put(self, reply: Replied) -> None:
        if self.set_running_or_notify_cancel():
            self.set_result(reply)


@dataclass(frozen=True, slots=True)
class NamedModel:
    """The model that clients call by a name."""

    name: str
    engine: EngineHandle
    adapter: str = ""
    """That answers, "" for the usual one."""

    @property
    def facts(self) -> Facts:
        """Of the model."""
        return self.engine.link.facts


class PromptGroup(NamedTuple):
    """Prompts that are asked with one sampling."""

    prompts: Sequence[Prompt]
    sampling: Sampling


class Server:
    """The engines and those who ask them. Made in the event loop that serves.

    links: to the engines' processes, by the names by which clients call their models; the first is
    that of the usual one. gate: who may ask. serving: HTTP requests that are being served. began:
    seconds since 1970.
    """

    app: ASGIApp
    """The routes, once they are made."""

    def __init__(self, config: ServeConfig, links: Mapping[str, Link], gate: Authenticator) -> None:
        self.config, self.gate = config, gate
        engines = {link: EngineHandle(link) for link in links.values()}
        self.engines = tuple(engines.values())
        self._models = {name: NamedModel(name, engines[link]) for name, link in links.items()}
        for name in config.adapters:
            self._models[name] = NamedModel(name, self.engines[0], name)
        self.models = tuple(self._models)
        self.admission = AdmissionController(config)
        self.metrics = Metrics(self.model(None).facts.policy)
        self.serving, self.began = 0, int(time.time())
        self._kept: dict[type, object] = {}

    def keep(self, *things: object) -> None:
        """Keep what routes need for the life of the server; `kept` gives it by its class."""
        self._kept |= {type(each): each for each in things}

    def kept(self, kind: type[T]) -> T:
        """What was kept of a class."""
        thing = self._kept[kind]
        assert isinstance(thing, kind)
        return thing

    def names_of(self, model: NamedModel) -> tuple[str, ...]:
        """All names by which clients call a model; the given one first."""
        every = ((name, replace(each, name=model.name)) for name, each in self._models.items())
        return tuple(dict.fromkeys((model.name, *(name for name, each in every if each == model))))

    def model(self, name: str | None) -> NamedModel:
        """A model by its name; the usual one without a name. Raises HttpError for one that is not
        served."""
        named = self._models.get(self.models[0] if name is None else name)
        if named is None:
            message = f"The model '{name}' is not served. Served: {', '.join(self.models)}."
            raise HttpError(404, message, "model_not_found", "model")
        return named

    async def call(
        self, scope: RequestScope, method: str, path: str, body: bytes, request: str
    ) -> tuple[int, bytes]:
        """The status and the body with which a route answers whom a scope is of, for requests that
        come in no HTTP request of their own. request: its id."""
        sent: list[Message] = []
        is_read = False

        async def receive() -> Message:
            nonlocal is_read
            if is_read:
                return await (scope.receive or asyncio.Future)()
            is_read = True
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            sent.append(message)

        about = {"type": "http", "http_version": "1.1", "scheme": "http", "root_path": ""}
        headers = [(b"content-type", b"application/json")]
        state = {"server": self, "scope": scope, "request_id": request}
        asked = {"method": method, "path": path, "query_string": b"", "headers": headers}
        try:
            await self.app({**about, **asked, "state": state}, receive, send)
        except Exception:  # which was answered, too
            _LOG.exception("request %s failed", request)
            if not sent:
                raise
        return sent[0]["status"], b"".join(each["body"] for each in sent[1:])

    @property
    def is_ready(self) -> bool:
        """Whether all engines have their models."""
        return all(each.link.ready for each in self.engines)

    async def state(self, most: int, tenant: str | None = None) -> EngineState:
        """What all engines are doing now. most, tenant: see state_of."""
        asked = (each.ask("state", most, tenant) for each in self.engines)
        states: list[EngineState] = await asyncio.gather(*asked)
        return states[0] if len(states) == 1 else together(states, most)


class RequestScope:
    """A request's sender, what its headers declare, and what it has used; it asks the engines.

    headers: those that declare its relQuery. receive: what tells that its client has left, if one
    waits; see ASGI. usual: the relQuery of what declares none. model: the name of the one that was
    asked last. prompts: that were asked. first_token: seconds until the first token of any answer.
    latency: of the last relQuery that has ended. error: what broke it, as a word. Used in the event
    loop alone.
    """

    def __init__(
        self,
        server: Server,
        identity: Identity,
        headers: Sequence[str] = (),
        receive: Receive | None = None,
        usual: engine.Declared | None = None,
    ) -> None:
        self.server, self.identity, self._headers = server, identity, headers
        self.tenant, self.model = identity.tenant, server.models[0]
        self.receive, self._usual = receive, usual
        self.prompts = self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self.first_token: float | None = None
        self.latency: Latency | None = None
        self.error: str | None = None

    def start(
        self,
        model: NamedModel,
        groups: Sequence[PromptGroup],
        body: DeclaredFields | None = None,
        **more: Any,
    ) -> JobAnswers:
        """Ask prompts as one relQuery; the prompts of all groups are counted through.

        body: the relQuery, if the body has it; the header may have it too. more: other fields of
        Submission. Raises HttpError, also where too many requests are open.
        """
        declared = declared_by(body, self._headers) or self._usual
        size = sum(len(each.prompts) for each in groups)
        self.server.admission.admit(size)
        self.prompts += size
        self.model, link, base = model.name, model.engine.link, 0
        sinks: list[CountedSink] = []

        def drop() -> None:
            for each in sinks:
                link.drop(each)
                each.leave()

        stream = JobAnswers(size, len(groups), drop)
        if len(groups) > 1:
            declared = _named(declared, size)
        about: dict[str, Any] = {"declared": declared, "adapter": model.adapter, **more}
        for prompts, _ in groups:
            sinks.append(CountedSink(self, stream, len(prompts), base))
            base += len(prompts)
        for sink, (prompts, sampling) in zip(sinks, groups, strict=True):
            if not link.submit(Submission(list(prompts), sampling, self.tenant, **about), sink):
                drop()
                raise stopping()
        return stream

    async def answer(
        self,
        body: AskingBody,
        model: NamedModel,
        groups: Sequence[PromptGroup],
        form: ResponseForm,
        places: Sequence[int] = (0,),
    ) -> Response:
        """Answers at once, or as events. places: the choice that each answer is, in the order of
        the groups' prompts. Raises HttpError, and what breaks the relQuery."""
        stream = self.start(model, groups, body.relquery, streamed=bool(body.stream))
        if body.stream:
            return EventResponse(form.events(stream, places), stream, form.failed)
        answers = await stream.answers(self.receive)
        await form.learn(answers)
        by_place = dict(zip(places, answers, strict=True))
        return Json(form.whole([by_place[place] for place in range(len(by_place))]))

    def declared(self, body: DeclaredFields | None = None) -> engine.Declared:
        """The relQuery that all calls of one job belong to. Raises HttpError."""
        return _named(declared_by(body, self._headers))

    def opened(self, size: int) -> None:
        """Count prompts that a job has asked."""
        self.prompts += size
        self.server.admission.open += size

    def answered(self, answer: Answer, seconds: float) -> None:
        """Count an answer. What was refused has cost nothing."""
        self.server.metrics.answered(self.tenant, answer, seconds)
        if answer.finish is Finish.ERROR:
            return
        self.prompt_tokens += answer.prompt_tokens
        self.cached_tokens += answer.cached_tokens
        self.output_tokens += answer.output_tokens
        first = answer.first_token
        if first is not None and (self.first_token is None or first < self.first_token):
            self.first_token = first
        if self.identity.limits is not None:
            self.identity.limits.charge(answer.prompt_tokens + answer.output_tokens)

    def ended(self, latency: Latency | None, error: BaseException | None) -> None:
        """Note how a relQuery has ended."""
        self.server.metrics.ended(self.tenant, latency)
        self.latency = latency or self.latency
        if error is not None:
            http_error = as_http(error)
            self.error = http_error.code or str(http_error.status)


class CountedSink:
    """A Sink on the way to another one, which counts what comes for a request.

    size: prompts. base: the place of the first of them there. ended: called when no more come.
    """

    def __init__(
        self,
        scope: RequestScope,
        sink: Sink,
        size: int,
        base: int = 0,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        self._scope, self._sink, self._left, self._base = scope, sink, size, base
        self._ended = ended
        self._began = time.perf_counter()

    def piece(self, index: int, piece: Piece) -> None:
        self._sink.piece(self._base + index, piece)

    def add(self, index: int, answer: Answer) -> None:
        self._count(1)
        self._scope.answered(answer, time.perf_counter() - self._began)
        self._sink.add(self._base + index, answer)

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self.leave()
        self._ended()
        self._scope.ended(latency, error)
        self._sink.end(latency, error)

    def leave(self) -> None:
        """What has no answer will get none."""
        self._count(self._left)

    def _count(self, answered: int) -> None:
        self._left -= answered
        self._scope.server.admission.open -= answered


class AskingBody(Protocol):
    """The fields of all bodies that ask for answers."""

    stream: bool | None
    relquery: DeclaredFields | None


async def scope_of(request: Request) -> RequestScope:
    """Of a request that has reached its route."""
    scope: RequestScope = request.state.scope
    return scope


Scope = Annotated[RequestScope, Depends(scope_of)]


def _named(declared: engine.Declared | None, rows: int | None = None) -> engine.Declared:
    """What makes several jobs one relQuery: its client's name for it, or one of ours."""
    if declared is not None and declared.id is not None:
        return declared
    name = f"relquery {secrets.token_hex(8)}"
    return engine.Declared(name, rows, None if declared is None else declared.deadline)
