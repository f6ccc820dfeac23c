"""Train the bundled demo model from scratch, evaluate it, and write the demo tables.

    python scripts/train_demo_model.py train --out build/demo      # resumes where it stopped
    python scripts/train_demo_model.py export --out build/demo --to src/relquery/demo/model
    python scripts/train_demo_model.py evaluate --model src/relquery/demo/model
    python scripts/train_demo_model.py tables

The stages are a curriculum: rows begin with the needed fields alone and grow to all eight.
Without it a model of this size learns nothing in the same time.
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

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from relquery.demo import model_path, table_path, tables
from relquery.demo.batches import batches, encode
from relquery.demo.evaluate import GOALS, Score, score
from relquery.demo.generator import examples, shuffled
from relquery.demo.greedy import Greedy
from relquery.demo.lessons import END, Mix, lessons
from relquery.demo.prompt import Prompt
from relquery.demo.rows import Kind
from relquery.demo.split import Split
from relquery.demo.tokenizer import PAD_ID, VOCABULARY, train_tokenizer

BATCH_TOKENS = 3072
POOL = 384  # lessons drawn at once and sorted by length, so that batches hold little padding
PEAK_RATE = 3e-3
WARM_STEPS = 150
CONTEXT_SHARE, CONTEXT_WEIGHT = 0.25, 0.3  # part of the context that is predicted, too
PROBES = 30  # held-out questions of each kind, asked in two orders at each report
REPORT_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of training: how many million tokens of which lessons."""

    name: str
    tokens: float
    mix: Mix


STAGES = (
    Stage("needed fields", 2.0, Mix((0, 1), 0.15, 0.20, 0.0, 8, (4, 6, 2, 1))),
    Stage("few fields", 1.8, Mix((0, 2), 0.30, 0.20, 0.2, 6, (3, 3, 4, 1))),
    Stage("half the fields", 2.2, Mix((0, 4), 0.20, 0.30, 0.5, 8, (5, 3, 4, 3))),
    Stage("all fields", 4.0, Mix((0, 6), 0.12, 0.40, 1.0, 10, (5, 3, 4, 3))),
    Stage("cool-down", 3.0, Mix((0, 6), 0.05, 0.50, 1.0, 10, (5, 3, 4, 3))),  # rate falls to zero
)


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
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
def forced_scores(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> str:
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


def _prompt_text(tokenizer: PreTrainedTokenizerFast, prompt: Prompt) -> str:
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


def train(out: Path, seed: int, threads: int, minutes: float) -> None:
    """Train until the stages end or `minutes` have passed; resumes from `out`."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "tokenizer.json").exists():
        train_tokenizer(seed, STAGES[-1].mix).save_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = new_model(tokenizer, seed)
    optimizers = new_optimizers(model)
    state = {"pool": 0, "step": 0, "tokens": 0}
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        for optimizer, values in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(values)
        state = saved["state"]
    goal = int(sum(stage.tokens for stage in STAGES) * 1e6)
    begin = shown = time.monotonic()
    losses: list[float] = []
    seen = state["tokens"]
    while state["tokens"] < goal and time.monotonic() - begin < minutes * 60:
        stage, _ = stage_at(state["tokens"])
        rng = Random(f"{seed}:{state['pool']}")
        torch.manual_seed(seed + state["pool"])  # a resumed run draws what an unbroken one does
        for ids, weights in batches(
            encode(tokenizer, list(islice(lessons(rng, stage.mix), POOL))), BATCH_TOKENS, rng
        ):
            rate = (
                PEAK_RATE * stage_at(state["tokens"])[1] * min(1, (state["step"] + 1) / WARM_STEPS)
            )
            losses.append(step(model, optimizers, ids, weights, rate))
            state["step"] += 1
            state["tokens"] += ids.numel()
        state["pool"] += 1
        if time.monotonic() - shown > REPORT_SECONDS:
            speed = (state["tokens"] - seen) / (time.monotonic() - shown)
            save(checkpoint, model, optimizers, state)
            print(
                f"{time.strftime('%H:%M:%S')} {stage.name}: {state['tokens'] / 1e6:.2f}M tokens,"
                f" {state['step']} steps, rate {rate:.1e}, loss {sum(losses) / len(losses):.3f},"
                f" {speed:.0f} tokens/s; {forced_scores(model, tokenizer)}",
                flush=True,
            )
            shown, losses, seen = time.monotonic(), [], state["tokens"]
    save(checkpoint, model, optimizers, state)
    print("stages done" if state["tokens"] >= goal else "time is up", state, flush=True)


def save(
    path: Path,
    model: LlamaForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    state: dict[str, int],
) -> None:
    """Write a checkpoint that `train` resumes from; a killed run leaves the last one whole."""
    values = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers]}
    torch.save({**values, "state": state}, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


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
    model.load_state_dict(torch.load(out / "checkpoint.pt")["model"])
    model.generation_config.do_sample = False
    model.half().save_pretrained(to)
    (to / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(to)


def evaluate(model_folder: Path, threads: int, per_kind: int) -> Score:
    """Held-out figures by real greedy generation, as text on the way."""
    torch.set_num_threads(threads)
    result = score(Greedy(model_folder), per_kind)
    print(json.dumps({"goals": GOALS, **asdict(result)}, indent=2))
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    learn = actions.add_parser("train", help="train until the stages end")
    learn.add_argument("--out", type=Path, default=Path("build/demo"))
    learn.add_argument("--seed", type=int, default=20)
    learn.add_argument("--threads", type=int, default=2)
    learn.add_argument("--minutes", type=float, default=math.inf, help="stop early")
    copy = actions.add_parser("export", help="write the trained model in float16")
    copy.add_argument("--out", type=Path, default=Path("build/demo"))
    copy.add_argument("--to", type=Path, default=model_path())
    judge = actions.add_parser("evaluate", help="score held-out questions")
    judge.add_argument("--model", type=Path, default=model_path())
    judge.add_argument("--threads", type=int, default=2)
    judge.add_argument("--per-kind", type=int, default=400)
    actions.add_parser("tables", help="write the bundled tables")
    options = parser.parse_args()
    match options.action:
        case "train":
            train(options.out, options.seed, options.threads, options.minutes)
        case "export":
            export(options.out, options.to)
        case "evaluate":
            evaluate(options.model, options.threads, options.per_kind)
        case "tables":
            tables.write(table_path("movies").parent)


if __name__ == "__main__":
    main()
