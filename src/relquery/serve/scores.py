"""Figures of texts. /v1/score: how likely each label is as the answer to each prompt. /tokenize and
/detokenize, in vLLM's form. /v1/embeddings and /v1/rerank: vectors by `--embedder`."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import exp, inf
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from relquery.arrays import Float32s
from relquery.backends.embedders import LocalEmbedder, load_embedder
from relquery.engine.requests.labels import Normalization
from relquery.errors import ConfigError
from relquery.prompt import Answer, Prompt, Role, Sampling, Span
from relquery.serve.bodies import ANY, Body, DeclaredFields, Inner, Label, Positive
from relquery.serve.errors import HttpError, Json, bad_request, not_supported, refusing
from relquery.serve.openai.choices import finish_of, usage_of
from relquery.serve.openai.completions import TokenId, raw_prompt
from relquery.serve.openai.fields import ChatMessage, prompt_of
from relquery.serve.server import PromptGroup, RequestScope, Scope

router = APIRouter(tags=["relquery", "vLLM"])
Messages = Annotated[list[ChatMessage], Field(min_length=1)]


class ScoreBody(Body):
    """Prompts, each a user's message, or one chat; and labels to be weighed.

    normalization: see relquery.Engine.score.
    """

    model: str
    prompts: Annotated[list[str], Field(min_length=1)] | None = None
    messages: Messages | None = None
    labels: Annotated[list[Label], Field(min_length=1)]
    normalization: Normalization = "joint"
    relquery: DeclaredFields | None = None


@router.post("/v1/score")
async def score(body: ScoreBody, scope: Scope) -> Response:
    """Weigh labels as answers, without decoding: for each prompt, their probabilities and the
    logarithms of these, null for a label of probability 0."""
    model = scope.server.model(body.model)
    if (body.prompts is None) == (body.messages is None):
        raise bad_request("Give either prompts or messages.", "prompts")
    prompts: list[Prompt] = [(Span(text),) for text in body.prompts or ()]
    if body.messages is not None:
        prompts = [prompt_of(body.messages)]
    with refusing("labels"):
        sampling = Sampling(labels=tuple(body.labels))
    groups = [PromptGroup(prompts, sampling)]
    stream = scope.start(model, groups, body.relquery, scored=body.normalization)
    answers = await stream.answers(scope.receive)
    data = [_scored(index, each) for index, each in enumerate(answers)]
    usage = usage_of(replace(each, output_tokens=0) for each in answers)
    return Json({"object": "list", "model": body.model, "data": data, "usage": usage})


def _scored(at: int, answer: Answer) -> dict[str, Any]:
    """Raises HttpError for an answer that could not be served."""
    finish_of(answer)
    assert answer.scores is not None, "it was not scored"
    logs = answer.scores
    shown = {label: None if log == -inf else log for label, log in logs.items()}
    return {
        "index": at,
        "best": max(logs, key=logs.__getitem__),
        "probabilities": {label: exp(log) for label, log in logs.items()},
        "log_probabilities": shown,
    }


class TokenizeBody(Body):
    """A text as /v1/completions reads it, or a chat as /v1/chat/completions does."""

    ACCEPTED: ClassVar = {"add_special_tokens": (True,), "add_generation_prompt": (True,)}
    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """Token ids."""

    model: str | None = None
    tokens: list[TokenId]


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, scope: Scope) -> Response:
    """The tokens of a prompt. max_model_len: of a prompt and its answer together."""
    model = scope.server.model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("Give either prompt or messages.", "prompt")
    asked = raw_prompt(body.prompt or "") if body.messages is None else prompt_of(body.messages)
    tokens: list[int] = await model.engine.ask("tokens", asked)
    strings = None
    if body.return_token_strs:
        spell = await model.engine.spell(tokens)
        strings = [spell(token).decode(errors="replace") for token in tokens]
    about = {"max_model_len": model.facts.context, "token_strs": strings}
    return Json({"tokens": tokens, "count": len(tokens), **about})


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, scope: Scope) -> Response:
    """The text of tokens, with the names of special ones."""
    engine = scope.server.model(body.model).engine
    if body.tokens:  # refuses ids that the model does not have
        await engine.ask("tokens", (Span(tuple(body.tokens), Role.NONE),))
    spelt = b"".join(map(await engine.spell(body.tokens), body.tokens))
    return Json({"prompt": spelt.decode(errors="replace")})


MOST_TEXTS = 2048
"""Of one request, as in OpenAI's API."""
_AT_ONCE = 16
"""Texts that are computed in one go: other requests come in between."""


class EmbeddingService:
    """The encoder of a server, in a thread of its own. given: by which name; None for none.

    Raises ConfigError for an embedder that is none of this machine's encoders, and ModelError.
    """

    def __init__(self, given: str | None) -> None:
        self.name: str | None = None
        """By which clients call it."""
        self._thread = ThreadPoolExecutor(1, "relquery-encoder")
        if given is None:
            return
        embedder = load_embedder(given)
        if not isinstance(embedder, LocalEmbedder):
            raise ConfigError(
                f"embedder is {given!r}; it must be an encoder on this machine, by its folder or "
                "Hugging Face name. `relquery models fetch sentence-transformers/all-MiniLM-L6-v2` "
                "installs one."
            )
        self.name, self._embedder = embedder.label, embedder
        self.dimensions = embedder.embed(["."]).shape[1]

    async def embed(
        self, texts: Sequence[str], scope: RequestScope, may_cut: bool
    ) -> tuple[Float32s, int]:
        """Vectors of length 1 (texts, dimensions), and the tokens that were read.

        Raises HttpError for a text that is longer than the encoder's context, unless it may be cut.
        """
        loop, parts, tokens = asyncio.get_running_loop(), list[Float32s](), 0
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            counts = await loop.run_in_executor(self._thread, self._embedder.count, some)
            for index, (count, is_cut) in enumerate(counts):
                if is_cut and not may_cut:
                    raise bad_request(
                        f"Text {start + index} is longer than the {count} tokens that the encoder "
                        "reads. Cut it into shorter texts.",
                        "input",
                        "context_length_exceeded",
                    )
            parts.append(await loop.run_in_executor(self._thread, self._embedder.embed, some))
            tokens += sum(count for count, _ in counts)
        scope.prompt_tokens += tokens
        if scope.identity.limits is not None:
            scope.identity.limits.charge(tokens)
        vectors = np.concatenate(parts)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0), tokens

    def close(self) -> None:
        """End the thread after what it computes."""
        self._thread.shutdown(cancel_futures=True)


Cut = Literal[-1] | None
"""vLLM's `truncate_prompt_tokens`: whether longer texts are cut to what the encoder reads."""


class EmbeddingBody(Body):
    """Texts of which vectors are asked for. dimensions: of the encoder, which has no others."""

    ACCEPTED: ClassVar = {"user": ANY, "input_type": ANY}
    model: str
    input: Label | list[Any]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    truncate_prompt_tokens: Cut = None

    @property
    def texts(self) -> list[str]:
        """Those of the input. Raises HttpError for token ids, which are those of another model."""
        given = [self.input] if isinstance(self.input, str) else self.input
        if not all(isinstance(each, str) and each for each in given):
            raise not_supported("input", "Send texts, none of them empty, and no token ids.")
        if not 0 < len(given) <= MOST_TEXTS:
            message = f"input has {len(given):,} texts; it must have 1 to {MOST_TEXTS:,}."
            raise bad_request(message, "input")
        return list(map(str, given))


class Document(Inner):
    """A text to be ranked."""

    text: Label


class RerankBody(Body):
    """Documents to be ranked for a query: all of them, or the best `top_n`."""

    ACCEPTED: ClassVar = {"user": ANY}
    model: str
    query: Label
    documents: Annotated[list[Label | Document], Field(min_length=1, max_length=MOST_TEXTS)]
    top_n: Positive | None = None
    return_documents: bool | None = None
    truncate_prompt_tokens: Cut = None


@router.post("/v1/embeddings")
async def embed(body: EmbeddingBody, scope: Scope) -> Response:
    """Vectors of texts, of length 1."""
    service = _service(scope, body.model)
    if body.dimensions not in (None, service.dimensions):
        raise not_supported(
            "dimensions", f"The encoder's vectors have {service.dimensions}; leave it out."
        )
    vectors, tokens = await service.embed(
        body.texts, scope, body.truncate_prompt_tokens is not None
    )
    shown = vectors.tolist()
    if body.encoding_format == "base64":
        shown = [base64.b64encode(each.tobytes()).decode() for each in vectors.astype("<f4")]
    data = [
        {"object": "embedding", "index": index, "embedding": each}
        for index, each in enumerate(shown)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Json({"object": "list", "data": data, "model": body.model, "usage": usage})


@router.post("/v1/rerank")
@router.post("/v2/rerank")
async def rerank(body: RerankBody, scope: Scope) -> Response:
    """Rank documents by the cosine of their vectors with the query's."""
    service = _service(scope, body.model)
    texts = [each if isinstance(each, str) else each.text for each in body.documents]
    vectors, tokens = await service.embed(
        [body.query, *texts], scope, body.truncate_prompt_tokens is not None
    )
    scores = vectors[1:] @ vectors[0]
    best = np.argsort(-scores, kind="stable")[: body.top_n].tolist()
    results = [
        {"index": place, "relevance_score": float(scores[place])}
        | ({"document": {"text": texts[place]}} if body.return_documents is not False else {})
        for place in best
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    name = f"rerank-{secrets.token_hex(12)}"
    return Json({"id": name, "model": body.model, "results": results, "usage": usage})


def _service(scope: RequestScope, model: str) -> EmbeddingService:
    """Raises HttpError where no encoder is served, or not under this name."""
    service = scope.server.kept(EmbeddingService)
    message = f"The encoder '{model}' is not served. Served: {service.name}."
    if service.name is None:
        message = "No encoder is served. Start the server with --embedder, e.g. --embedder auto."
    if model != service.name:
        raise HttpError(404, message, "model_not_found", "model")
    return service
