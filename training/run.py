"""Training of the demo model: a curriculum, with checkpoints from which training resumes.

The stages are a curriculum: rows begin with only the needed fields and grow to all eight.
A prototype without it had learned nothing after three million tokens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)

from training.batches import BATCH_TOKENS, Batch, batches, encode
from training.course import Course, Stage
from training.forced import before, forced_scores
from training.lessons.lessons import Lesson, lessons, needle_lessons
from training.tokenizer import PAD_ID, VOCABULARY, train_tokenizer

POOL = 384  # lessons drawn at once and sorted by length, so that batches have little padding
WARM_STEPS = 150
CONTEXT_WEIGHT = 0.3  # of context tokens that are also predicted
REPORT_SECONDS = 180
CHECKPOINT = "checkpoint.pt"


def new_model(tokenizer: PreTrainedTokenizerBase, seed: int) -> LlamaForCausalLM:
    """A small Llama with tied embeddings."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=3,
            num_key_value_heads=3,
            head_dim=64,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            attn_implementation="eager",  # the fastest on short sequences on a CPU
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


class Training:
    """A model in training, with everything that a resumed run needs to match an unbroken one.

    pools, steps, tokens: pools of lessons drawn, updates made, and tokens read so far.
    """

    def __init__(self, course: Course, out: Path, seed: int, begin: Path | None = None) -> None:
        """Begin with the exported model in `begin`, or from scratch; resume where `out` stopped."""
        out.mkdir(parents=True, exist_ok=True)
        if not (out / "tokenizer.json").exists():
            tokenizer = AutoTokenizer.from_pretrained(begin) if begin else train_tokenizer(seed)
            tokenizer.save_pretrained(out)
        self.course, self.seed = course, seed
        self.tokenizer = AutoTokenizer.from_pretrained(out)
        self.model = new_model(self.tokenizer, seed)
        if begin:
            exported = AutoModelForCausalLM.from_pretrained(begin, dtype=torch.float32)
            self.model.load_state_dict(exported.state_dict())
        self.optimizers = new_optimizers(self.model, course.rate)
        self.pools = self.steps = self.tokens = 0
        self._checkpoint = out / CHECKPOINT
        if self._checkpoint.exists():
            self._load(torch.load(self._checkpoint))

    def pool(self) -> list[float]:
        """Learn from one pool of lessons; returns the losses."""
        rng = Random(f"{self.seed}:{self.pools}")
        torch.manual_seed(self.seed + self.pools)
        drawn = self._draw(rng, self.course.at(self.tokens)[0])
        losses = []
        for batch in batches(encode(self.tokenizer, drawn), BATCH_TOKENS, rng):
            falling, rising = self.course.at(self.tokens)[1], min(1, (self.steps + 1) / WARM_STEPS)
            rate = self.course.rate * falling * rising
            losses.append(step(self.model, self.optimizers, batch, rate, self.course.context))
            self.steps += 1
            self.tokens += batch.ids.numel()
        self.pools += 1
        return losses

    @staticmethod
    def _draw(rng: Random, stage: Stage) -> list[Lesson]:
        needles = round(POOL * stage.needles)
        drawn: list[Lesson] = []
        for apart in (False, True):
            share = stage.apart if apart else 1 - stage.apart
            rows = lessons(rng, stage.mix, apart=apart)
            drawn += islice(rows, round((POOL - needles) * share))
            drawn += islice(needle_lessons(rng, stage.hay, apart=apart), round(needles * share))
        return drawn

    def save(self) -> None:
        """Write a checkpoint; if the run is killed meanwhile, the last one remains intact."""
        values = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "state": {"pool": self.pools, "step": self.steps, "tokens": self.tokens},
        }
        torch.save(values, self._checkpoint.with_suffix(".new"))
        self._checkpoint.with_suffix(".new").replace(self._checkpoint)

    def _load(self, saved: dict[str, Any]) -> None:
        self.model.load_state_dict(saved["model"])
        for optimizer, values in zip(self.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(values)
        state = saved["state"]
        self.pools, self.steps, self.tokens = state["pool"], state["step"], state["tokens"]


def train(training: Training, minutes: float) -> None:
    """Train until the stages end or `minutes` have passed."""
    begin = shown = time.monotonic()
    losses: list[float] = []
    tokens, course = training.tokens, training.course
    while training.tokens < course.tokens and time.monotonic() - begin < minutes * 60:
        losses += training.pool()
        if (passed := time.monotonic() - shown) > REPORT_SECONDS:
            training.save()
            print(
                f"{course.at(training.tokens)[0].name}: {training.tokens / 1e6:.2f}M tokens,"
                f" {training.steps} steps, loss {sum(losses) / len(losses):.3f},"
                f" {(training.tokens - tokens) / passed:.0f} tokens/s;"
                f" {forced_scores(training.model, training.tokenizer)}",
                flush=True,
            )
            shown, losses, tokens = time.monotonic(), [], training.tokens
    training.save()
    print("stages done" if training.tokens >= course.tokens else "time is up", flush=True)


def new_optimizers(model: LlamaForCausalLM, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for embeddings and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "layers" in name]
    known = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in known]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def step(
    model: LlamaForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Batch,
    rate: float,
    context_share: float,
) -> float:
    """One update; returns the loss on answers."""
    expected, weights = batch.ids[:, 1:], batch.weights[:, 1:]
    learned = weights > 0
    context = ~learned & (expected != PAD_ID) & (torch.rand(learned.shape) < context_share)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = before(model, batch)
        answers = model.lm_head(hidden[learned]).float()
        around = model.lm_head(hidden[context]).float() if context_share else None
    losses = cross_entropy(answers, expected[learned], reduction="none") * weights[learned]
    loss = losses.sum() / weights.sum()
    beside = 0.0 if around is None else CONTEXT_WEIGHT * cross_entropy(around, expected[context])
    (loss + beside).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def export(out: Path, to: Path) -> None:
    """Write the trained model in float16, with its tokenizer, to `to`.

    The least bit of each weight is rounded away: a wheel, which is compressed, gets 6% smaller.
    """
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = new_model(tokenizer, seed=0)
    model.load_state_dict(torch.load(out / CHECKPOINT)["model"])
    model.generation_config.do_sample = False
    with torch.no_grad():
        for weight in model.half().parameters():
            weight.copy_(without_least_bit(weight))
    model.save_pretrained(to)
    (to / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(to)


def without_least_bit(weights: torch.Tensor) -> torch.Tensor:
    """Weights in float16, each rounded to the nearest with 9 bits of mantissa, ties to even."""
    bits = weights.view(torch.int16).to(torch.int32)
    tie_to_even = (bits >> 1) & 1
    return (((bits + tie_to_even) >> 1) << 1).to(torch.int16).view(torch.float16)
