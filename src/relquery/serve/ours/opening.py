"""What our routes need for the life of a server."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from relquery.errors import OrderWarning, PartialResultWarning, PromptWarning
from relquery.serve.ours.markup.registry import Registry
from relquery.serve.ours.runs import Runs
from relquery.serve.ours.sql.desk import Desk
from relquery.serve.ours.sql.tables import Tables
from relquery.serve.server import Server


@contextmanager
def opened(server: Server) -> Iterator[None]:
    """A block in which a server has its tables, schemas and threads.

    Raises TableError for a table that cannot be read, MarkupError for a schema.
    """
    config = server.config
    # Those who ask are told in their answers.
    for kind in (PartialResultWarning, OrderWarning, PromptWarning):
        warnings.simplefilter("ignore", kind)
    registry = Registry(config.schemas)
    desk, runs = Desk(Tables(config.tables, config.sql_memory)), Runs()
    try:
        for thing in (desk, runs, registry):
            server.keep(thing)
        yield
    finally:
        runs.close()
        desk.close()
