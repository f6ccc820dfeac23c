"""Stands in for vLLM: its offline engine, whose model has one token for each character."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.llm_engine import LLMEngine


@dataclass
class SamplingParams:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: list[str] = field(default_factory=list)
    max_tokens: int = 16
    detokenize: bool = True
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | None = None
    allowed_token_ids: list[int] | None = None
    logprob_token_ids: list[int] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2:
            raise VLLMValidationError(f"temperature must be in [0, 2], got {self.temperature}.")


class Tokenizer:
    eos_token_id = 0
    chat_template = None

    def __call__(
        self, texts: list[str], add_special_tokens: bool, return_attention_mask: bool
    ) -> dict[str, list[list[int]]]:
        start = [1] if add_special_tokens else []
        return {"input_ids": [[*start, *map(ord, text)] for text in texts]}


class LLM:
    def __init__(self, model: str, **kwargs: Any) -> None:
        if model == "nowhere":
            raise OSError("Repo id must use alphanumeric chars")
        if "nonsense" in kwargs:
            raise TypeError("unexpected keyword argument 'nonsense'")
        self.model, self.kwargs = model, kwargs
        self.llm_engine = LLMEngine()
        self.llm_engine.model_config = SimpleNamespace(max_model_len=500)

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer()
