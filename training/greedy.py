"""Answers from the greedy `generate` of `transformers`, which other engines must match."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from training.lessons.prompt import Prompt

MAX_NEW_TOKENS = 96  # the longest field value is shorter


class Greedy:
    """A callable from prompts to answers, in float32 on the CPU."""

    def __init__(self, folder: Path, batch_size: int = 64) -> None:
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._batch_size = batch_size

    def __call__(self, prompts: Sequence[Prompt]) -> list[str]:
        """The answers, in the order of `prompts`; batches hold prompts of about equal length."""
        texts = [
            self._tokenizer.apply_chat_template(
                prompt.messages, add_generation_prompt=True, tokenize=False
            )
            for prompt in prompts
        ]
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        answers = [""] * len(texts)
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            for i, answer in zip(batch, self._generate([texts[i] for i in batch]), strict=True):
                answers[i] = answer
        return answers

    @torch.inference_mode()
    def _generate(self, texts: list[str]) -> list[str]:
        inputs = self._tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt")
        ids = self._model.generate(**inputs, do_sample=False, max_new_tokens=MAX_NEW_TOKENS)
        new = ids[:, inputs["input_ids"].shape[1] :]
        return [str(text) for text in self._tokenizer.batch_decode(new, skip_special_tokens=True)]
