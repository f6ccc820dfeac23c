"""A quick check of a model in training: it sees the right answers and predicts each token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from training.batches import BATCH_TOKENS, Batch, batches, encode
from training.domains.rows import Kind
from training.domains.split import Split
from training.lessons.generator import examples, shuffled
from training.lessons.lessons import END, Lesson, Piece, needle_lessons
from training.lessons.prompt import Prompt

PROBES = 30  # held-out questions of each kind, asked in two orders


def before(model: LlamaForCausalLM, batch: Batch) -> Tensor:
    """Hidden states (lessons, longest - 1, hidden) from which each next token is predicted."""
    mask = block_sparse(batch.modules) if batch.modules.any() else None
    found = model.model(batch.ids, attention_mask=mask, use_cache=False)
    hidden: Tensor = found.last_hidden_state
    return hidden[:, :-1]


def block_sparse(modules: Tensor) -> Tensor:
    """What is added to scores (lessons, 1, longest, longest), of each token's module (lessons,
    longest): a module's tokens see their own module, and other tokens all before them (paper 001,
    section 3.3)."""
    rows, columns = modules[:, :, None], modules[:, None, :]
    seen = ((rows == 0) | (rows == columns)).tril()
    least = torch.finfo(torch.float32).min
    return torch.zeros(seen.shape).masked_fill(~seen, least)[:, None]


@torch.inference_mode()
def forced_scores(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> str:
    """Held-out shares per kind; an answer is right if every token is the most likely one."""
    rng, parts = Random(7), [_needle_score(model, tokenizer)]
    for kind in Kind:
        asked = list(islice(examples(7, Split.HELD_OUT, kind), PROBES))
        asked += [shuffled(example, rng) for example in asked]
        lessons_ = [
            [
                Piece(_prompt_text(tokenizer, example.prompt)),
                Piece(example.answer + END, learned=True),
            ]
            for example in asked
        ]
        right = forced(model, tokenizer, lessons_)
        both = sum(a and b for a, b in zip(right[:PROBES], right[PROBES:], strict=True))
        parts.append(f"{kind.value} {sum(right) / len(right):.2f}, twice {both / PROBES:.2f}")
    return "; ".join(parts)


def _needle_score(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> str:
    parts = []
    for hay in (8, 32, 96):
        for apart in (False, True):
            stream = needle_lessons(Random(f"probe:{hay}"), hay, apart=apart)
            right = forced(model, tokenizer, list(islice(stream, 3 * PROBES)))
            note = " apart" if apart else ""
            parts.append(f"{hay} hay{note} {sum(right) / len(right):.2f}")
    return ", ".join(parts)


def forced(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, asked: Sequence[Lesson]
) -> list[bool]:
    """For each lesson, whether every token to be learned is the most likely one."""
    right = []
    for pair in encode(tokenizer, asked):
        (batch,) = batches([pair], BATCH_TOKENS, Random(0))
        hidden, learned = before(model, batch), batch.weights[:, 1:] > 0
        found = model.lm_head(hidden[learned]).argmax(-1)
        right.append(bool((found == batch.ids[:, 1:][learned]).all()))
    return right


def _prompt_text(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> str:
    text = tokenizer.apply_chat_template(
        prompt.messages, add_generation_prompt=True, tokenize=False
    )
    return str(text)
