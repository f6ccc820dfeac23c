"""An engine that answers a few requests in each step, the oldest first.

It answers with the last characters of the prompt in capitals. A token is the likelier after others,
the nearer its number is to theirs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm.exceptions import VLLMValidationError

AT_ONCE = 3


def logprob(prompt: list[int], token: int) -> float:
    return -((sum(prompt) * 31 + token * 17) % 13) / 4


class LLMEngine:
    def __init__(self) -> None:
        self.model_config: Any = None
        self.open: dict[str, tuple[list[int], Any]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.aborted: list[str] = []
        self.engine_core = SimpleNamespace(shutdown=lambda: None)

    def add_request(self, request_id: str, prompt: Any, params: Any) -> None:
        tokens = prompt["prompt_token_ids"]
        if len(tokens) > self.model_config.max_model_len:
            raise VLLMValidationError("The prompt is longer than the model's context.")
        self.open[request_id] = (tokens, params)
        self.asked.append(("".join(map(chr, tokens)), params))

    def abort_request(self, request_ids: list[str]) -> None:
        self.aborted += request_ids
        for request_id in request_ids:
            self.open.pop(request_id, None)

    def step(self) -> list[Any]:
        done = []
        for request_id in [*self.open][:AT_ONCE]:
            tokens, params = self.open.pop(request_id)
            if params.allowed_token_ids is not None:
                logs = {token: logprob(tokens, token) for token in params.logprob_token_ids}
                best = max(params.allowed_token_ids, key=logs.__getitem__)
                entry = {token: SimpleNamespace(logprob=log) for token, log in logs.items()}
                given = SimpleNamespace(
                    text=chr(best), token_ids=[best], finish_reason="length", logprobs=[entry]
                )
            else:
                text = "".join(map(chr, tokens)).strip()[-4:].upper()[: params.max_tokens]
                reason = "length" if params.max_tokens < 4 else "stop"
                given = SimpleNamespace(
                    text=text, token_ids=[*map(ord, text)], finish_reason=reason, logprobs=None
                )
            done.append(
                SimpleNamespace(
                    request_id=request_id,
                    finished=True,
                    prompt_token_ids=tokens,
                    num_cached_tokens=2,
                    outputs=[given],
                )
            )
        return done
