"""`python -m benchmarks.gpu`: one GPU, in less than ten minutes. Needs no package index.

Writes gpu.json after each part, into the folder that the variable OUT names or the present one.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.build import ready_package

SECONDS = 570.0
"""Of the whole run, building included."""


def main() -> None:
    """Run all parts on each network."""
    began = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tiny network, to try the parts")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu in Triton's interpreter")
    parser.add_argument("--dtype", help="default: bfloat16, or float32 on a CPU")
    parser.add_argument("--network", action="append", help="1b or 8b; default both, in this order")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the whole run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--compile", action="store_true", help="let transformers compile its decode steps"
    )
    given = parser.parse_args()
    on_cpu = given.device == "cpu"
    if on_cpu:
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported
    ready_package()

    import torch

    from benchmarks.gpu.run import Parts
    from benchmarks.gpu.sizes import FULL, QUICK
    from benchmarks.gpu.timing import Budget
    from benchmarks.harness import machine

    sizes = QUICK if given.quick else FULL
    whole = Budget(given.seconds, began)
    dtype = given.dtype or ("float32" if on_cpu else "bfloat16")
    document: dict[str, Any] = {
        "machine": machine(torch.get_num_threads()),
        "device": "cpu" if on_cpu else torch.cuda.get_device_name(),
        "dtype": dtype,
        "seed": given.seed,
        "built_seconds": time.perf_counter() - began,
        "found": [],
    }
    path = Path(os.environ.get("OUT", ".")) / "gpu.json"
    for name in given.network or sizes.models:
        budget = Budget(min(sizes.seconds[name], whole.left))
        parts = Parts(
            sizes.models[name], sizes, given.device, dtype, given.seed, compiled=given.compile
        )
        for result in parts.all(budget):
            document["found"].append({"network": name, **result})
            path.write_text(json.dumps(document, indent=1), encoding="utf-8")
            print(json.dumps({"network": name, **result}), flush=True)
        del parts
        gc.collect()
        if not on_cpu:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
