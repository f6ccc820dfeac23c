"""Train the bundled demo model from scratch, evaluate it, and write the demo tables.

    python -m training train --out build/demo   # resumes where it stopped
    python -m training export --out build/demo --to build/rows
    python -m training extend --from build/rows --out build/needles  # resumes
    python -m training export --out build/needles --to build/whole
    python -m training separate --from build/whole --out build/modules  # resumes
    python -m training export --out build/modules --to src/relquery/demo/model
    python -m training evaluate --model src/relquery/demo/model
    python -m training needles --model src/relquery/demo/model
    python -m training tables

On one CPU core the stages take about an hour. `extend` also teaches an exported model to find
names in hay, mixed with lessons of the old kind so that it does not forget them. This takes another
half hour. `separate` teaches an exported model to read fields and texts that are modules (paper
001), which takes 45 minutes on one to two cores.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path

import torch

from relquery.demo import model_path, table_path
from training.course import MODULES, NEEDLES, ROWS
from training.greedy import Greedy
from training.hay import needle_shares
from training.lessons import tables
from training.lessons.evaluate import GOALS, score
from training.run import Training, export, train


def evaluate(folder: Path, per_kind: int, seed: int) -> None:
    """Print held-out figures measured with real greedy generation."""
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
    more = actions.add_parser("extend", help="teach an exported model to find names in hay")
    more.add_argument("--from", type=Path, default=Path("build/rows"), dest="begin")
    more.add_argument("--out", type=Path, default=Path("build/needles"))
    apart = actions.add_parser("separate", help="teach an exported model to read modules")
    apart.add_argument("--from", type=Path, default=Path("build/whole"), dest="begin")
    apart.add_argument("--out", type=Path, default=Path("build/modules"))
    for action in (learn, more, apart):
        action.add_argument("--seed", type=int, default=20)
        action.add_argument("--minutes", type=float, default=math.inf, help="stop early")
    copy = actions.add_parser("export", help="write the trained model in float16")
    copy.add_argument("--out", type=Path, default=Path("build/demo"))
    copy.add_argument("--to", type=Path, default=model_path())
    judge = actions.add_parser("evaluate", help="score held-out questions")
    judge.add_argument("--model", type=Path, default=model_path())
    judge.add_argument("--per-kind", type=int, default=400)
    judge.add_argument("--seed", type=int, default=1)
    find = actions.add_parser("needles", help="score questions for names in hay")
    find.add_argument("--model", type=Path, default=model_path())
    find.add_argument("--hay", type=int, nargs="+", default=[8, 16, 24, 32, 48])
    find.add_argument("--cases", type=int, default=100)
    find.add_argument("--seed", type=int, default=1)
    actions.add_parser("tables", help="write the bundled tables")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    match options.action:
        case "train":
            train(Training(ROWS, options.out, options.seed), options.minutes)
        case "extend":
            train(Training(NEEDLES, options.out, options.seed, options.begin), options.minutes)
        case "separate":
            train(Training(MODULES, options.out, options.seed, options.begin), options.minutes)
        case "export":
            export(options.out, options.to)
        case "evaluate":
            evaluate(options.model, options.per_kind, options.seed)
        case "needles":
            shares = needle_shares(options.model, options.hay, options.cases, options.seed)
            print(json.dumps(shares, indent=2))
        case "tables":
            tables.write(table_path("movies").parent)


if __name__ == "__main__":
    main()
