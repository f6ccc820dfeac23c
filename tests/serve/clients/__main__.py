"""What clients of other people do with a running server, unchanged: a table of client and feature.

Run by `scripts/clients`, in an environment that has the clients:
python -m tests.serve.clients URL MODEL ENCODER TOKENIZER [CLIENT ...]
ENCODER, TOKENIZER: "" for none; a tokenizer is a folder, which lm-eval and vLLM's client need.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings

from tests.serve.clients import frameworks, programs, sdks
from tests.serve.clients.features import CLIENTS, Target, tried

MODULES = (sdks, frameworks, programs)
"""Which fill CLIENTS when they are imported."""
SETTINGS = {
    "OPENAI_API_KEY": "none",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "DAFT_ANALYTICS_ENABLED": "0",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
}
"""Nothing but the server is asked."""
NAMES = ("chat", "stream", "tools", "streamed tools", "structured", "embeddings", "logprobs")


def main(url: str, model: str, encoder: str, tokenizer: str, *only: str) -> None:
    """Print the table, and exit with 1 if something failed."""
    warnings.simplefilter("ignore")
    target, others = Target(url, model, encoder, tokenizer), list[str]()
    print(f"| client | {' | '.join(NAMES)} |", f"|---{'|---' * len(NAMES)}|", sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"LLM_USER_PATH": folder, **SETTINGS}
        for client in only or CLIENTS:
            told = list[str]()
            for name in NAMES:
                found = tried(client, name, target) if name in CLIENTS[client] else ""
                if found not in ("", "yes"):
                    others.append(f"{client}, {name}: {found.removeprefix('- ')}")
                told.append(found.partition(" ")[0])
            print(f"| {client} | {' | '.join(told)} |", flush=True)
    for each in others:
        print(each, flush=True)
    sys.exit(1 if any("FAILED" in each for each in others) else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
