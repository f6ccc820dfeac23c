"""A process that asks a server about many rows, and may be killed at any time."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import closing
from pathlib import Path

import openai.resources.chat  # before processes begin: it takes long

from relquery.backends.load import load
from relquery.config import QueryConfig
from relquery.ledger import Ledger
from relquery.prompt import Sampling, Span
from relquery.sql.execute.answered import answered
from relquery.sql.execute.asker import Asker

START = multiprocessing.get_context("forkserver")
"""Processes begin in milliseconds, with this module imported."""
START.set_forkserver_preload([__name__])

ROWS = 1000
CLIENT = openai.resources.chat.AsyncCompletions


def ask(path: Path, url: str, concurrency: int) -> None:
    """Ask about every row; answers go into the ledger.

    There are more rows than are asked about before the last kill.
    """
    prompts = [(Span(f"row {number}"),) for number in range(ROWS)]
    backend = load("openai:m", base_url=url, api_key="none", max_concurrency=concurrency)
    with closing(backend), closing(Ledger.open(path)) as ledger:
        asker = Asker(backend, QueryConfig(), ledger, None, time.perf_counter)
        answered(prompts, Sampling(), asker)
