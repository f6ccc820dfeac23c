"""What our routes need for the life of a server."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from relquery.errors import OrderWarning, PartialResultWarning, PromptWarning
from relquery.serve.ours.markup.registry import Registry
from relquery.serve.ours.runs import Runs
from relquery.serve.ours.sql.desk import Desk
from relquery.serve.ours.sql.tables import Tables
from relquery.serve.settings import ServeConfig


@contextmanager
def opened(config: ServeConfig) -> Iterator[Sequence[object]]:
    """What a server keeps until the end of the block: its tables, schemas and threads.

    Raises TableError for a table that cannot be read, MarkupError for a schema.
    """
    # Those who ask are told in their answers.
    for kind in (PartialResultWarning, OrderWarning, PromptWarning):
        warnings.simplefilter("ignore", kind)
    registry = Registry(config.schemas)
    desk, runs = Desk(Tables(config.tables, config.sql_memory)), Runs()
    try:
        yield desk, runs, registry
    finally:
        runs.close()
        desk.close()
