"""A filter over Movies by `vllm:FOLDER`, in our order and in the table's. Prints JSON.

python -m benchmarks.vllm.programs.filtering NETWORK TABLE ROWS ROUNDS
"""

from __future__ import annotations

import json
import os
import sys
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from relquery import connect
from relquery.config import Order
from relquery.vllm.in_process import InProcessBackend

FILTER = """
    SELECT movietitle FROM movies WHERE LLM('Given the following fields, answer in one word,
    ''Yes'' or ''No'', whether the movie would be suitable for kids. Answer with ONLY ''Yes'' or
    ''No''.', movies.*, labels := ['Yes', 'No']) = 'Yes'"""
"""Paper 000, appendices A and C: its filter (T1) on Movies, answered by one of two labels."""
ORDERS: tuple[Order, ...] = ("original", "tree")
WARM_UP = 32


def main(network: str, table: str, rows: int, rounds: int) -> dict[str, Any]:
    """Seconds of the query by order, its tokens, and what is cached of them."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    backend = InProcessBackend(network, dtype="float32", block_size=32, max_model_len=4_096)
    movies = pq.read_table(table).slice(0, rows)
    answers: dict[str, Any] = {}
    for number in range(rounds + 1):
        for order in ORDERS if number % 2 else ORDERS[::-1]:
            backend._llm.reset_prefix_cache()
            shown = movies if number else movies.slice(0, WARM_UP)
            with connect(backend, order=order, form="json", ledger=None) as connection:
                connection.register("movies", shown)
                result = connection.sql(FILTER)
                report = result.report
            if number:
                each = answers.setdefault(order, {"seconds": []})
                each["seconds"].append(report.seconds)
                each |= {
                    "calls": report.calls,
                    "prompt_tokens": report.prompt_tokens,
                    "cached_tokens": report.cached_tokens,
                    "errors": report.errors,
                }
    backend.close()
    for each in answers.values():
        each["seconds"] = median(each["seconds"])
    return answers


if __name__ == "__main__":
    given = sys.argv[1:]
    print(json.dumps(main(given[0], given[1], int(given[2]), int(given[3]))))
