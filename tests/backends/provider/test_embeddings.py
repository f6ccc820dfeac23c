"""An endpoint's vectors come in the order of the texts, whatever the order of the replies."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Response
from benchmarks.standin.server import Reply, Scripted, Silence, serving
from relquery.arrays import Float32s
from relquery.backends.embedders import embedder_of, load_embedder
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.embeddings import Endpoint
from relquery.errors import ConfigError, ModelError, RequestError
from relquery.retrieval.vectors import KnownVectors, VectorStore

ROUTE = "/v1/embeddings"


def vector_of(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 97)]


def embeddings(body: dict[str, Any]) -> Reply:
    data = [
        {"object": "embedding", "index": at, "embedding": vector_of(text)}
        for at, text in enumerate(body["input"])
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return Response({"object": "list", "data": data[::-1], "model": "m", "usage": usage})


def test_vectors_come_in_the_order_of_the_texts() -> None:
    texts = [f"text {i}" * (i % 5) for i in range(1000)]
    with serving(embeddings, ROUTE) as server:
        endpoint = Endpoint("m", ProviderConfig(base_url=server.url, api_key="k"))
        found = endpoint.embed(texts)
        assert endpoint.embed([]).size == 0
    np.testing.assert_array_equal(found, [vector_of(text or " ") for text in texts])
    assert len(server.asked) == 4
    assert all(text for body in server.asked for text in body["input"])


def test_dimensions_are_sent_and_are_part_of_the_name() -> None:
    with serving(embeddings, ROUTE) as server:
        options = {"base_url": server.url, "api_key": "k"}
        endpoint: Any = load_embedder("openai:m", dimensions=2, **options)
        endpoint.embed(["a"])
        assert server.asked[0]["dimensions"] == 2
        plain: Any = load_embedder("openai:m", **options)
        assert plain.name != endpoint.name
        with pytest.raises(RequestError, match=r"of 2 dimensions in place of 3.* leave out dim"):
            endpoint_of(server, 3).embed(["a"])


def test_a_refused_key_and_a_failure_are_told() -> None:
    def refuse(body: dict[str, Any]) -> Reply:
        return Refused(401, "bad key") if body["input"] == ["key"] else Refused(400, "too long")

    with serving(refuse, ROUTE) as server:
        endpoint = Endpoint("m", ProviderConfig(base_url=server.url, api_key="k", max_retries=0))
        with pytest.raises(ModelError, match="refuses the API key"):
            endpoint.embed(["key"])
        with pytest.raises(RequestError, match=r"embedder openai:m.* failed. .*too long"):
            endpoint.embed(["text"])


def test_names_and_options_are_checked() -> None:
    assert load_embedder("tfidf") is None
    for name, options, said in (
        ("tfidf", {"pooling": "cls"}, "pooling"),
        ("openai:m", {"dimension": 3, "api_key": "k"}, "dimension"),
        ("openai:m", {"dimensions": 0, "api_key": "k"}, "dimensions is 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            load_embedder(name, **options)
    for wrong in ["", 7]:
        with pytest.raises(ConfigError, match=f"embedder is {wrong!r}"):
            embedder_of(wrong)  # type: ignore[arg-type]


TEXTS = [f"text {at}" for at in range(5000)]


def endpoint_of(server: Scripted, dimensions: int | None = None, **options: Any) -> Endpoint:
    given: dict[str, Any] = {"api_key": "k", "max_retries": 0, **options}
    return Endpoint("m", ProviderConfig(base_url=server.url, **given), dimensions)


def sent(server: Scripted) -> list[str]:
    return [text for body in server.asked for text in body["input"]]


def test_one_failed_request_of_many_costs_only_its_own_texts() -> None:
    is_well = False

    def answer(body: dict[str, Any]) -> Reply:
        if TEXTS[-1] in body["input"] and not is_well:
            return Refused(500, "out of memory")
        return embeddings(body)

    with serving(answer, ROUTE) as server:
        known = KnownVectors(endpoint_of(server))
        with pytest.raises(RequestError, match=r"failed. The server answered 500: out of memory"):
            known.of(TEXTS)
        assert len(server.asked) == 20
        is_well = True
        server.asked.clear()
        found = known.of(["a question", *TEXTS])
        assert sorted(sent(server)) == sorted(["a question", *TEXTS[19 * 256 :]])
    given = np.array([vector_of(text) for text in ["a question", *TEXTS]], np.float32)
    expected = given / np.linalg.norm(given, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("reply", "texts", "said", "most"),
    [
        (Refused(500, "no"), TEXTS, "500: no", 1),  # after a failure nothing more is sent
        (Refused(413, "too large"), TEXTS, r"413: too large. .* the text 'text \d+'", 60),
        (Refused(400, "unknown field dimensions"), TEXTS[:256], "unknown field", 1),
    ],
)
def test_a_server_that_refuses_every_text_is_not_asked_for_all(
    reply: Reply, texts: list[str], said: str, most: int
) -> None:
    with serving(lambda _: reply, ROUTE) as server:
        with pytest.raises(RequestError, match=said):
            endpoint_of(server, max_concurrency=1).embed(texts)
        assert len(server.asked) <= most


def too_many(most: int) -> Callable[[dict[str, Any]], Reply]:
    def answer(body: dict[str, Any]) -> Reply:
        said = f"batch size {len(body['input'])} > maximum allowed batch size {most}"
        return Refused(400, said) if len(body["input"]) > most else embeddings(body)

    return answer


@pytest.mark.parametrize("most", [pytest.param(1, marks=pytest.mark.long), 32])
def test_requests_with_too_many_texts_are_halved_and_the_size_is_remembered(most: int) -> None:
    texts = TEXTS[: 300 if most == 1 else 1500]
    with serving(too_many(most), ROUTE) as server:
        endpoint = endpoint_of(server, max_concurrency=2)
        np.testing.assert_array_equal(endpoint.embed(texts), [vector_of(text) for text in texts])
        assert sum(len(body["input"]) > most for body in server.asked) <= 40
        server.asked.clear()
        endpoint.embed(texts)
        assert sum(len(body["input"]) > most for body in server.asked) <= 2
        taken = [len(body["input"]) for body in server.asked if len(body["input"]) <= most]
        assert sum(taken) == len(texts)


def test_one_long_text_is_named_and_the_others_are_embedded_in_large_requests() -> None:
    long = "long " * 100
    texts = [*TEXTS[:300], long, *TEXTS[300:900]]

    def answer(body: dict[str, Any]) -> Reply:
        if long in body["input"]:
            return Refused(400, "This model's maximum context length is 99 tokens.")
        return embeddings(body)

    with serving(answer, ROUTE) as server:
        known = KnownVectors(endpoint_of(server))
        said = r"failed. .* 400: This model's maximum .* text 'long long .*\.\.\.'. Shorten"
        with pytest.raises(RequestError, match=said):
            known.of(texts)
        assert len(server.asked) < 30
        server.asked.clear()
        known.of(TEXTS[:900])
        assert not server.asked


def of_data(*data: object) -> str | dict[str, Any]:
    return {"object": "list", "data": list(data), "model": "m"}


def vectors(*found: object, first: int = 0) -> str | dict[str, Any]:
    return of_data(*({"index": at, "embedding": one} for at, one in enumerate(found, first)))


REPLIES: dict[str, tuple[str | dict[str, Any], str]] = {
    "error": ({"error": {"message": "model overloaded"}}, "answered: model overloaded."),
    "words": ({"error": "model overloaded"}, "answered: model overloaded."),
    "page": ("<html>Welcome</html>", r"no JSON but '<html>Welcome.*Check that http://.*/v1"),
    "list": ("[[1.0, 2.0]]", "a list of JSON in place of an object. Check that http://"),
    "nothing": ({"object": "list"}, "no vectors but"),
    "no data": (of_data(), "returned no vectors"),
    "one": (vectors([1.0]), "returned 1 vectors for 2 texts"),
    "from 1": (vectors([1.0], [1.0], first=1), "the indices 1, 2; expected each of 0 to 1 once"),
    "none": (of_data({"embedding": [1.0]}, {"embedding": [1.0]}), "the indices None, None"),
    "empty": (vectors([], []), r"an array of shape \(2, 0\)"),
    "lengths": (vectors([1.0, 2.0], [1.0]), "returned vectors of 1 to 2 numbers for 2 texts"),
    "null": (vectors(None, [1.0]), "that is not an array of numbers"),
    "infinite": (vectors([1.0], [float("inf")]), "NaN or infinity in vector 2"),
    "zero": (vectors([0.0, 0.0], [0, 1]), "vector of zeros for the text 'a'"),
    "not base64": (vectors("???", "???"), "not an array of numbers|array of"),
}


def test_a_reply_without_usable_vectors_says_what_came() -> None:
    for body, said in REPLIES.values():
        with (
            serving(lambda _, body=body: Response(body), ROUTE) as server,  # type: ignore[misc]
            pytest.raises(RequestError, match=f"openai:m@127.*{said}") as caught,
        ):
            endpoint_of(server).embed(["a", "b"])
        assert "all failed" not in str(caught.value)


async def blanks() -> AsyncIterator[str]:
    for _ in range(40):
        yield " "
        await asyncio.sleep(0.05)


def test_a_reply_that_is_none_or_comes_too_slowly_is_asked_for_again() -> None:
    odd: list[Reply] = [Response("<html>"), Response(events=blanks()), Response(vectors([1.0]))]
    replies = iter([*odd, Response({"error": {"message": "overloaded"}})])
    with serving(lambda body: next(replies, embeddings(body)), ROUTE) as server:
        found = endpoint_of(server, timeout=0.3, max_retries=3).embed(["a", "b"])
        np.testing.assert_array_equal(found, [vector_of("a"), vector_of("b")])
        assert len(server.asked) == 5


def test_vectors_in_base64_are_read() -> None:
    def answer(body: dict[str, Any]) -> Reply:
        arrays = [np.array(vector_of(text), "<f4").tobytes() for text in body["input"]]
        return Response(vectors(*(base64.b64encode(one).decode() for one in arrays)))

    with serving(answer, ROUTE) as server:
        found = endpoint_of(server).embed(["ab", "c"])
    np.testing.assert_array_equal(found, [vector_of("ab"), vector_of("c")])


@pytest.mark.parametrize("to_main_thread", [False, True])
def test_an_interrupt_keeps_what_has_come(
    to_main_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    came, others_are_stored, stored = threading.Event(), threading.Event(), list[bytes]()
    put = VectorStore.put

    def counted(store: VectorStore, digests: Sequence[bytes], vectors: Float32s) -> None:
        put(store, digests, vectors)
        stored.extend(digests)
        if len(stored) == 19 * 256:
            others_are_stored.set()

    monkeypatch.setattr(VectorStore, "put", counted)

    def answer(body: dict[str, Any]) -> Reply | Silence:
        if TEXTS[-1] not in body["input"] or came.is_set():
            return embeddings(body)
        came.set()
        assert others_are_stored.wait(60)
        if to_main_thread:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return Silence.UNTIL_CLIENT_LEAVES

    with serving(answer, ROUTE) as server:
        known = KnownVectors(endpoint_of(server, max_concurrency=30))
        with pytest.raises(KeyboardInterrupt):
            known.of(TEXTS)
        server.asked.clear()
        known.of(TEXTS)
        assert sent(server) == TEXTS[19 * 256 :]


def test_parts_that_nobody_waits_for_are_not_asked() -> None:
    with serving(embeddings, ROUTE) as server:
        parts = endpoint_of(server, max_concurrency=1).embed_in_parts(TEXTS)
        next(parts)
        parts.close()  # type: ignore[attr-defined]
        asked = len(server.asked)
        assert asked < 20
        assert threading.active_count() < 50
        time.sleep(0.05)
        assert len(server.asked) == asked
