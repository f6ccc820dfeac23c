"""What `transformers` answers with SmolLM2, as a file: `python -m tests.real.golden` writes it.

It holds row numbers of the real tables and token ids, no text of the tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.real.prompts import Row, rows, sentences
from tests.real.reference import Reference

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_suffix(".json")
COUNT, TOKENS = 24, 8
SPANS = 4
LABELS = ("positive", "negative")
BEGIN, CHOICES = '{"positive":', ("true}", "false}")
SCHEMA = '{"type": "object", "properties": {"positive": {"type": "boolean"}}}'


def model_folder(name: str) -> Path:
    """Where `scripts/real-models` puts a model."""
    return ROOT / ".real-models" / name


def spans_of(number: int, count: int = SPANS) -> list[str]:
    """A beginning, two passages that attend to themselves alone, and a question; one of `count`."""
    first, second, question = sentences(3 * count)[3 * number : 3 * number + 3]
    return [
        "Here are two questions.\n",
        f"{first}\n",
        f"{second}\n",
        f"Answer this one: {question}\n",
    ]


def spans_answer(
    reference: Reference, texts: list[str], tokens: int = TOKENS, begins: Sequence[int] = ()
) -> list[int]:
    """The reference's answer to the texts of `spans_of`. begins: the position of each text's first
    token; without them each follows the one before it."""
    parts = [reference.tokenizer(text)["input_ids"] for text in texts]
    ids = [token for part in parts for token in part]
    first, second = len(parts[0]), len(parts[0]) + len(parts[1])
    apart = (range(first, second), range(second, second + len(parts[2])))
    pairs = zip(begins, parts, strict=bool(begins))
    positions = [begin + at for begin, part in pairs for at in range(len(part))]
    return reference.greedy_apart(ids, apart, tokens, positions)


def answers(reference: Reference, asked: list[Row], tokens: int = TOKENS) -> list[list[int]]:
    """Greedy answers to rows."""
    return [reference.greedy(reference.chat(("user", row.prompt)), tokens) for row in asked]


def same(some: list[list[int]], others: list[list[int]]) -> int:
    """How many answers are the same in both."""
    return sum(one == other for one, other in zip(some, others, strict=True))


def compute() -> dict[str, Any]:
    """All that the file holds."""
    asked, folder = rows(COUNT), model_folder("smollm2")
    reference = Reference(folder, torch.float32)
    reviews = [reference.chat(("user", row.prompt)) for row in asked[: COUNT // 4]]
    rounded = {
        attention: answers(Reference(folder, torch.bfloat16, attention), asked)
        for attention in ("eager", "sdpa")
    }
    return {
        "rows": [[row.source, row.row] for row in asked],
        "float32": answers(reference, asked),
        "bfloat16": rounded | {"same": same(rounded["eager"], rounded["sdpa"])},
        "spans": [spans_answer(reference, spans_of(number)) for number in range(SPANS)],
        "labels": [reference.label(prompt, LABELS) for prompt in reviews],
        "schema": [reference.choice(prompt, BEGIN, CHOICES) for prompt in reviews],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(compute(), separators=(",", ":")).replace("],[", "],\n[") + "\n")
