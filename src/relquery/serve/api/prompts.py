"""/v1/schemas and /v1/prompts: prompt modules, those of all and each tenant's own, and the prompts
over them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from relquery.backends.base import Backend
from relquery.errors import ConfigError
from relquery.markup.schema import Schema
from relquery.markup.schemas import Schemas, Used
from relquery.prompt import Prompt
from relquery.serve.api.fields import Sampled
from relquery.serve.body import Body, example
from relquery.serve.document import errors
from relquery.serve.errors import HttpError, Json, bad_request
from relquery.serve.openai.choices import finish_of, usage_of
from relquery.serve.server import Asked, RequestScope, Scope
from relquery.serve.tasks import Task, start

router = APIRouter(tags=["relquery"])
Markup = Annotated[str, Field(min_length=1, max_length=1_000_000)]


class SchemaBody(Body):
    """A schema in markup. model: whose prompts may name it. prepare: compute the states of its
    modules now."""

    model_config = example(
        {"markup": '<schema name="drinks"><module name="tea">Tea is hot.</module></schema>'}
    )
    markup: Markup
    model: str | None = None
    prepare: bool = False


class PromptBody(Sampled):
    """A prompt in markup. independent: whether its modules are used; false sends plain text."""

    model_config = example({"prompt": '<prompt schema="drinks"><tea/>Is it hot?</prompt>'})
    prompt: Markup
    independent: bool = True


class SchemaShown(BaseModel):
    """A schema. modules: their paths. shared: whether it is everybody's."""

    name: str
    object: Literal["schema"]
    shared: bool
    modules: list[str]
    markup: str | None = None


class SchemaList(BaseModel):
    """The schemas that prompts may name."""

    object: Literal["list"]
    data: list[SchemaShown]


class Deleted(BaseModel):
    """A schema that was deleted."""

    name: str
    object: Literal["schema"]
    deleted: Literal[True]


class UsedShown(BaseModel):
    """A part of a prompt, and how many of its tokens were cached; see PromptResult."""

    name: str
    tokens: int
    cached: int
    sources: list[str]


class PromptAnswer(BaseModel):
    """The answer to a prompt."""

    answer: str
    finish_reason: str
    used: list[UsedShown]
    usage: dict[str, Any]


@router.post("/v1/schemas", response_model=SchemaShown, responses=errors(409, 504))
async def add_schema(body: SchemaBody, scope: Scope) -> Response:
    """Let your prompts name a schema, in place of yours of the same name."""

    owned = _owned(scope, body.model)

    def add(task: Task[Schema]) -> Schema:
        del task
        schema = Schema.parse(body.markup)
        scope.server.kept(Registry).add(owned, schema, prepare=body.prepare)
        return schema

    schema = await start(scope, add).result(scope)
    return Json(_shown(schema, shared=False))


@router.get("/v1/schemas", response_model=SchemaList, responses=errors())
async def list_schemas(scope: Scope, model: str | None = None) -> Response:
    """The schemas that your prompts may name."""
    known = dict(_owned(scope, model).schemas.known)
    registry = scope.server.kept(Registry)
    data = [_shown(each, shared=registry.is_shared(name)) for name, each in known.items()]
    return Json({"object": "list", "data": data})


@router.get("/v1/schemas/{name:path}", response_model=SchemaShown, responses=errors(404))
async def get_schema(name: str, scope: Scope, model: str | None = None) -> Response:
    """A schema and its markup."""
    owned = _owned(scope, model)
    schema = owned.schemas.known.get(name)
    if schema is None:
        raise not_there(name, owned)
    shared = scope.server.kept(Registry).is_shared(name)
    return Json({**_shown(schema, shared=shared), "markup": schema.source})


@router.delete("/v1/schemas/{name:path}", response_model=Deleted, responses=errors(403, 404, 504))
async def delete_schema(name: str, scope: Scope, model: str | None = None) -> Response:
    """Forget a schema that you have posted."""
    owned = _owned(scope, model)

    def remove(task: Task[None]) -> None:
        del task
        scope.server.kept(Registry).remove(owned, name)

    await start(scope, remove).result(scope)
    return Json({"name": name, "object": "schema", "deleted": True})


class _Lowered(NamedTuple):
    prompt: Prompt
    used: list[Used]


@router.post("/v1/prompts", response_model=PromptAnswer, responses=errors(404, 422, 504))
async def answer_prompt(body: PromptBody, scope: Scope) -> Response:
    """Answer a prompt over a schema, with the states of the modules that it imports."""
    sampling, model = body.sampling, scope.server.model(body.model)
    owned = _owned(scope, body.model)

    def lower(task: Task[_Lowered]) -> _Lowered:
        del task
        with owned.turn:
            lowered = owned.schemas.lower(body.prompt, independent=body.independent)
            asking = scope.backend(model)
            return _Lowered(lowered.prompt, owned.schemas.used(lowered, asking))

    lowered = await start(scope, lower).result(scope)
    stream = scope.start([Asked([lowered.prompt], sampling, model)], body.relquery)
    answers = await stream.answers(scope.receive)
    (answer,) = answers
    return Json(
        {
            "answer": answer.text or "",
            "finish_reason": finish_of(answer),
            "used": [asdict(each) for each in lowered.used],
            "usage": usage_of(answers),
        }
    )


def _owned(scope: RequestScope, model: str | None) -> Owned:
    """What the tenant has for a model, whose adapters share it. Raises HttpError."""
    found = replace(scope.server.model(model), adapter="")

    def backend() -> Backend:
        """For all that the tenant will ask, so none of the relQuery of this request."""
        return RequestScope(scope.server, scope.identity).backend(found)

    return scope.server.kept(Registry).of((scope.tenant, found.engine), backend)


def _shown(schema: Schema, *, shared: bool) -> dict[str, object]:
    modules = [".".join(path) for path, _ in schema.modules()]
    return {"name": schema.name, "object": "schema", "shared": shared, "modules": modules}


MOST_SCHEMAS = 100
"""That a tenant may have posted."""
MOST_CHARACTERS = 4_000_000
"""Of all of them together."""


@dataclass(slots=True)
class Owned:
    """What a tenant can name. schemas: laid out for it, one at a time. own: what it has posted.

    turn: held while `schemas` is used.
    """

    schemas: Schemas
    own: dict[str, Schema] = field(default_factory=dict)
    turn: Lock = field(default_factory=Lock)


class Registry:
    """The schemas of a server, by tenant and model. Used from any thread."""

    def __init__(self, folder: Path | None) -> None:
        """Read the schemas of a folder, which are everybody's.

        Raises ConfigError for what is not a folder, and MarkupError.
        """
        self._of_all = [] if folder is None else _read(folder)
        self._owned: dict[Hashable, Owned] = {}
        self._lock = Lock()

    def of(self, whose: Hashable, backend: Callable[[], Backend]) -> Owned:
        """What a tenant can name in prompts of a model."""
        with self._lock:
            if whose not in self._owned:
                schemas = Schemas(backend())
                for schema in self._of_all:
                    schemas.add(schema)
                self._owned[whose] = Owned(schemas)
            return self._owned[whose]

    def is_shared(self, name: str) -> bool:
        """Whether a schema is everybody's."""
        return any(schema.name == name for schema in self._of_all)

    def add(self, owned: Owned, schema: Schema, *, prepare: bool) -> None:
        """Give a tenant a schema, in place of one of the same name.

        Raises HttpError if it has too many, or the name is one of everybody's, and what
        Schemas.add raises.
        """
        if self.is_shared(schema.name):
            raise HttpError(
                409,
                f"The schema '{schema.name}' is everybody's. Give yours another name.",
                "in_use",
            )
        with owned.turn:
            kept = [each for name, each in owned.own.items() if name != schema.name]
            if len(kept) >= MOST_SCHEMAS:
                raise bad_request(
                    f"There are {MOST_SCHEMAS} schemas already. Delete one first.",
                    code="too_many_schemas",
                )
            size = sum(len(each.source) for each in (*kept, schema))
            if size > MOST_CHARACTERS:
                raise bad_request(
                    f"Your schemas would have {size:,} characters together; at most "
                    f"{MOST_CHARACTERS:,} may be.",
                    code="too_large",
                )
            before = owned.own.get(schema.name)
            try:
                owned.schemas.add(schema, prepare=prepare)
                owned.schemas.layout(schema.name)
            except BaseException:
                owned.schemas.remove(schema.name)
                if before is not None:
                    owned.schemas.add(before)
                raise
            owned.own[schema.name] = schema

    def remove(self, owned: Owned, name: str) -> None:
        """Forget a tenant's schema. Raises HttpError for one that it has not posted."""
        if self.is_shared(name):
            raise HttpError(403, f"The schema '{name}' is everybody's.", "not_allowed")
        with owned.turn:
            if name not in owned.own:
                raise not_there(name, owned)
            del owned.own[name]
            owned.schemas.remove(name)


def not_there(name: str, owned: Owned) -> HttpError:
    """There is no schema of this name."""
    known = ", ".join(sorted(owned.schemas.known)) or "none"
    return HttpError(404, f"The schema '{name}' does not exist. Schemas: {known}.", "not_found")


def _read(folder: Path) -> list[Schema]:
    if not folder.is_dir():
        raise ConfigError(f"schemas is {str(folder)!r}, which is not a folder.")
    return [Schema.load(file) for file in sorted(folder.glob("*.xml"))]
