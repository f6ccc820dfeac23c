"""Train the bundled demo model from scratch, evaluate it, and write the demo tables.

    python scripts/train_demo_model.py train --out build/demo   # resumes where it stopped
    python scripts/train_demo_model.py export --out build/demo --to src/relquery/demo/model
    python scripts/train_demo_model.py evaluate --model src/relquery/demo/model
    python scripts/train_demo_model.py tables

The stages are a curriculum: rows begin with the needed fields alone and grow to all eight.
A prototype without it had learned nothing after three million tokens. On one core of a CPU the
stages take about an hour.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch
from demo_model.batches import batches, encode
from demo_model.greedy import Greedy
from demo_model.tokenizer import PAD_ID, VOCABULARY, train_tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)

from relquery.demo import model_path, table_path, tables
from relquery.demo.evaluate import GOALS, score
from relquery.demo.generator import examples, shuffled
from relquery.demo.lessons import END, Mix, lessons
from relquery.demo.prompt import Prompt
from relquery.demo.rows import Kind
from relquery.demo.split import Split

BATCH_TOKENS = 3072
POOL = 384  # lessons drawn at once and sorted by length, so that batches hold little padding
PEAK_RATE = 3e-3
WARM_STEPS = 150
CONTEXT_SHARE, CONTEXT_WEIGHT = 0.25, 0.3  # part of the context that is predicted, too
PROBES = 30  # held-out questions of each kind, asked in two orders at each report
REPORT_SECONDS = 180
CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of training: how many million tokens of which lessons."""

    name: str
    tokens: float
    mix: Mix


# Mix: extra fields; shares of recall, single questions, system prompt; most turns; kind weights.
STAGES = (
    Stage("needed fields", 2.0, Mix((0, 1), 0.15, 0.20, 0.0, 8, (4, 6, 2, 1))),
    Stage("few fields", 1.8, Mix((0, 2), 0.30, 0.20, 0.2, 6, (3, 3, 4, 1))),
    Stage("half the fields", 2.2, Mix((0, 4), 0.20, 0.30, 0.5, 8, (5, 3, 4, 3))),
    Stage("all fields", 6.5, Mix((0, 7), 0.12, 0.40, 1.0, 10, (5, 3, 4, 3))),
    Stage("cool-down", 4.0, Mix((0, 7), 0.05, 0.50, 1.0, 10, (5, 3, 4, 3))),  # rate falls to zero
)
GOAL = int(sum(stage.tokens for stage in STAGES) * 1e6)


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


def before(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    """Hidden states (sequences, longest - 1, hidden) from which each next token is predicted."""
    hidden: Tensor = model.model(ids, use_cache=False).last_hidden_state
    return hidden[:, :-1]


@torch.inference_mode()
def forced_scores(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> str:
    """Held-out shares per kind, quickly: right when every answer token is the likeliest one."""
    rng, parts = Random(7), []
    for kind in Kind:
        asked = list(islice(examples(7, Split.HELD_OUT, kind), PROBES))
        asked += [shuffled(example, rng) for example in asked]
        lessons_ = [
            [(_prompt_text(tokenizer, example.prompt), False), (example.answer + END, True)]
            for example in asked
        ]
        right = []
        for pair in encode(tokenizer, lessons_):
            ((ids, weights),) = batches([pair], BATCH_TOKENS, rng)
            hidden, learned = before(model, ids), weights[:, 1:] > 0
            right.append(
                bool((model.lm_head(hidden[learned]).argmax(-1) == ids[:, 1:][learned]).all())
            )
        both = sum(a and b for a, b in zip(right[:PROBES], right[PROBES:], strict=True))
        parts.append(f"{kind.value} {sum(right) / len(right):.2f}, twice {both / PROBES:.2f}")
    return "; ".join(parts)


def _prompt_text(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> str:
    text = tokenizer.apply_chat_template(
        prompt.messages, add_generation_prompt=True, tokenize=False
    )
    return str(text)


def stage_at(tokens: int) -> tuple[Stage, float]:
    """The stage after `tokens`, and the learning rate's factor: 1, in the last stage falling."""
    done = tokens / 1e6
    for stage in STAGES[:-1]:
        if done < stage.tokens:
            return stage, 1.0
        done -= stage.tokens
    return STAGES[-1], max(0.0, 1.0 - done / STAGES[-1].tokens)


class Training:
    """A model in training, with all that a resumed run needs to go on as an unbroken one would.

    pools, steps, tokens: how many pools of lessons were drawn, updates made, tokens read.
    """

    def __init__(self, out: Path, seed: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / "tokenizer.json").exists():
            train_tokenizer(seed).save_pretrained(out)
        self.seed = seed
        self.tokenizer = AutoTokenizer.from_pretrained(out)
        self.model = new_model(self.tokenizer, seed)
        self.optimizers = new_optimizers(self.model)
        self.pools = self.steps = self.tokens = 0
        self._checkpoint = out / CHECKPOINT
        if self._checkpoint.exists():
            self._load(torch.load(self._checkpoint))

    def pool(self) -> list[float]:
        """Learn from one pool of lessons; returns the losses."""
        rng = Random(f"{self.seed}:{self.pools}")
        torch.manual_seed(self.seed + self.pools)
        drawn = list(islice(lessons(rng, stage_at(self.tokens)[0].mix), POOL))
        losses = []
        for ids, weights in batches(encode(self.tokenizer, drawn), BATCH_TOKENS, rng):
            falling, rising = stage_at(self.tokens)[1], min(1.0, (self.steps + 1) / WARM_STEPS)
            rate = PEAK_RATE * falling * rising
            losses.append(step(self.model, self.optimizers, ids, weights, rate))
            self.steps += 1
            self.tokens += ids.numel()
        self.pools += 1
        return losses

    def save(self) -> None:
        """Write a checkpoint; a run killed meanwhile leaves the last one whole."""
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


def train(out: Path, seed: int, minutes: float) -> None:
    """Train until the stages end or `minutes` have passed; resumes from `out`."""
    training = Training(out, seed)
    begin = shown = time.monotonic()
    losses: list[float] = []
    tokens = training.tokens
    while training.tokens < GOAL and time.monotonic() - begin < minutes * 60:
        losses += training.pool()
        if (passed := time.monotonic() - shown) > REPORT_SECONDS:
            training.save()
            print(
                f"{stage_at(training.tokens)[0].name}: {training.tokens / 1e6:.2f}M tokens,"
                f" {training.steps} steps, loss {sum(losses) / len(losses):.3f},"
                f" {(training.tokens - tokens) / passed:.0f} tokens/s;"
                f" {forced_scores(training.model, training.tokenizer)}",
                flush=True,
            )
            shown, losses, tokens = time.monotonic(), [], training.tokens
    training.save()
    print("stages done" if training.tokens >= GOAL else "time is up", flush=True)


def new_optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for embeddings and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "layers" in name]
    known = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in known]
    return [
        torch.optim.Muon(matrices, lr=PEAK_RATE, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def step(
    model: LlamaForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    ids: Tensor,
    weights: Tensor,
    rate: float,
) -> float:
    """One update; returns the loss on answers."""
    expected, weights = ids[:, 1:], weights[:, 1:]
    learned = weights > 0
    context = ~learned & (expected != PAD_ID) & (torch.rand(learned.shape) < CONTEXT_SHARE)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = before(model, ids)
        answers = model.lm_head(hidden[learned]).float()
        around = model.lm_head(hidden[context]).float()
    losses = cross_entropy(answers, expected[learned], reduction="none") * weights[learned]
    loss = losses.sum() / weights.sum()
    (loss + CONTEXT_WEIGHT * cross_entropy(around, expected[context])).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def export(out: Path, to: Path) -> None:
    """Write the trained model in float16, with its tokenizer, to `to`."""
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = new_model(tokenizer, seed=0)
    model.load_state_dict(torch.load(out / CHECKPOINT)["model"])
    model.generation_config.do_sample = False
    model.half().save_pretrained(to)
    (to / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(to)


def evaluate(folder: Path, per_kind: int, seed: int) -> None:
    """Print held-out figures by real greedy generation."""
    print(json.dumps({"goals": GOALS, **asdict(score(Greedy(folder), per_kind, seed))}, indent=2))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    actions = parser.add_subparsers(dest="action", required=True)
    learn = actions.add_parser("train", help="train until the stages end")
    learn.add_argument("--out", type=Path, default=Path("build/demo"))
    learn.add_argument("--seed", type=int, default=20)
    learn.add_argument("--minutes", type=float, default=math.inf, help="stop early")
    copy = actions.add_parser("export", help="write the trained model in float16")
    copy.add_argument("--out", type=Path, default=Path("build/demo"))
    copy.add_argument("--to", type=Path, default=model_path())
    judge = actions.add_parser("evaluate", help="score held-out questions")
    judge.add_argument("--model", type=Path, default=model_path())
    judge.add_argument("--per-kind", type=int, default=400)
    judge.add_argument("--seed", type=int, default=1)
    actions.add_parser("tables", help="write the bundled tables")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    match options.action:
        case "train":
            train(options.out, options.seed, options.minutes)
        case "export":
            export(options.out, options.to)
        case "evaluate":
            evaluate(options.model, options.per_kind, options.seed)
        case "tables":
            tables.write(table_path("movies").parent)


if __name__ == "__main__":
    main()
