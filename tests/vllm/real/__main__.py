"""Run all tries, each in processes of its own. The exit status is how many have failed."""

from __future__ import annotations

import subprocess
import sys

TRIES = ("policies", "spans", "in_process")


def main() -> int:
    """Each try prints what it finds."""
    failed = 0
    for name in TRIES:
        print(f"{name}:", flush=True)
        done = subprocess.run([sys.executable, "-m", f"tests.vllm.real.{name}"], check=False)
        failed += done.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
