"""Stand-ins for the providers: requests are checked, and results made, with the SDKs' own types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from anthropic.types.messages import MessageBatchIndividualResponse
from anthropic.types.messages.batch_create_params import Request
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

Json = dict[str, Any]
FORMS = ("openai", "anthropic")
_ANTHROPIC, _OPENAI = TypeAdapter(Request), TypeAdapter(CompletionCreateParamsNonStreaming)


def requests(paths: Iterable[Path]) -> list[Json]:
    """The requests in batch files, each of which its provider's SDK accepts as it is."""
    lines = [line for path in paths for line in path.read_bytes().split(b"\n")[:-1]]
    found = [json.loads(line) for line in lines]
    for request in found:
        _check(request)
    return found


def _check(request: Json) -> None:
    """Nothing is unknown to the SDK: validation drops unknown keys, and then differs."""
    if "params" in request:
        assert _all(_ANTHROPIC.validate_python(request)) == request
        return
    assert set(request) == {"custom_id", "method", "url", "body"}
    assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
    assert _all(_OPENAI.validate_python(request["body"])) == request["body"]


def _all(value: object) -> object:
    """With lazily validated lists read to their ends."""
    if isinstance(value, str | bytes | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {key: _all(item) for key, item in value.items()}
    assert isinstance(value, Iterable)
    return [_all(item) for item in value]


def blocks(request: Json) -> list[tuple[str, bool]]:
    """The texts of a request in the order read, and whether each ends a prefix to be cached."""
    if "params" in request:
        params = request["params"]
        contents = [params.get("system", ""), *(m["content"] for m in params["messages"])]
        mark = "cache_control"
    else:
        contents = [message["content"] for message in request["body"]["messages"]]
        mark = "prompt_cache_breakpoint"
    return [block for content in contents for block in _parts(content, mark)]


def _parts(content: str | list[Json], mark: str) -> Iterator[tuple[str, bool]]:
    if isinstance(content, str):
        if content:
            yield content, False
        return
    for part in content:
        yield part["text"], mark in part


def text(request: Json) -> str:
    """All that the model reads."""
    return "".join(part for part, _ in blocks(request))


def answer(request: Json, said: str) -> Json:
    """The line of a result file for a request that was answered."""
    custom_id = request["custom_id"]
    if "params" in request:
        return {"custom_id": custom_id, "result": {"type": "succeeded", "message": message(said)}}
    response = {"status_code": 200, "request_id": "r", "body": completion(said)}
    return {"id": "b", "custom_id": custom_id, "response": response, "error": None}


def message(said: str, stop_reason: str = "end_turn") -> Json:
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": said},
        ],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def completion(said: str | None, finish_reason: str = "stop", refusal: str | None = None) -> Json:
    message = {"role": "assistant", "content": said, "refusal": refusal}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}
    known = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt"}
    return {**known, "choices": [choice]}


def check_result(line: Json) -> None:
    """A line of a result file is one that the SDK reads."""
    if "result" in line:
        MessageBatchIndividualResponse.model_validate(line, strict=True)
    elif line["response"] and line["response"]["status_code"] == 200:
        ChatCompletion.model_validate(line["response"]["body"], strict=True)


def write_results(path: Path, lines: Iterable[Json | str]) -> Path:
    """A result file; texts are lines as they stand."""
    written = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{line}\n" for line in written), encoding="utf-8")
    return path


def caches(waves: Iterable[list[Json]], size: Callable[[str], int], minimum: int) -> int:
    """Tokens that Anthropic's cache serves if the requests of a wave are sent together.

    A request reads the longest of its marked prefixes that was marked in an earlier wave. Prefixes
    are equal if their blocks are.
    """
    known: set[tuple[str, ...]] = set()
    read = 0
    for wave in waves:
        written = set()
        for request in wave:
            texts = [part for part, _ in blocks(request)]
            ends = [at for at, (_, marked) in enumerate(blocks(request), 1) if marked]
            prefixes = [tuple(texts[:end]) for end in ends]
            assert all(sum(map(size, prefix)) >= minimum for prefix in prefixes)
            hits = [sum(map(size, prefix)) for prefix in prefixes if prefix in known]
            read += max(hits, default=0)
            written.update(prefixes)
        known |= written
    return read
