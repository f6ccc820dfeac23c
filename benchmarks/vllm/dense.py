"""A prompt with spans by one pass with an explicit mask: what reuse is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relquery.vllm.spans.composite import Composite


def log_probabilities(model: Any, composite: Composite, output: Sequence[int] = ()) -> Any:
    """After the prompt and after each token of an answer. (1 + answer, vocabulary).

    A span sees itself alone; all else sees everything before it; positions are the prompt's.
    model: of transformers, with eager attention.
    """
    import torch

    tokens = [*composite.prompt, *output]
    seen = torch.tril(torch.ones(len(tokens), len(tokens), dtype=torch.bool))
    start = 0
    for span in composite.spans:
        seen[start : start + len(span), :start] = False
        start += len(span)
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))[None, None]
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([tokens]),
            attention_mask=mask,
            position_ids=torch.arange(len(tokens))[None],
            logits_to_keep=1 + len(output),
        ).logits[0]
    return logits.log_softmax(-1)
