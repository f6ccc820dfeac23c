"""Starting a server: its processes first, which load while this one imports what it serves with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from relquery.backends.remote.process import EngineProcess
from relquery.serve.logs import set_up
from relquery.serve.settings import ServeConfig
from relquery.serve.sql_workers.pool import WorkerPool

if TYPE_CHECKING:
    from relquery.serve.server import Server


def serve(config: ServeConfig, told: Callable[[Server, int], None] | None = None) -> bool:
    """Serve until a signal says to stop; False if a second one said to stop at once.

    told: called with the server and its port once it takes requests. Raises what opening a model
    raises, ConfigError for an address that is taken and for a wrong keys' file, and TableError for
    a table that cannot be read.
    """
    set_up(config.log, config.log_level)
    with ExitStack() as until_it_ends:
        engines: list[tuple[tuple[str, ...], EngineProcess]] = []
        for names, model, options in _models(config):
            prepare = partial(set_up, config.log, config.log_level)
            engines.append((names, EngineProcess(model, options, prepare)))
            until_it_ends.callback(engines[-1][1].kill)
        pool = WorkerPool(config)
        until_it_ends.callback(pool.close)
        if config.tables:
            pool.start()
        from relquery.serve.serving import listen  # all that a server needs, which takes long

        return listen(config, engines, pool, told)


def _models(config: ServeConfig) -> list[tuple[tuple[str, ...], str, dict[str, Any]]]:
    """Names, model and options of each engine, with what the keys say of tenants."""
    options = dict(config.options)
    if config.keys is not None:
        from relquery.serve.auth import read_keys, weights_of

        options["weights"] = {**weights_of(read_keys(config.keys)), **options.get("weights", {})}
        options.setdefault("share_prefixes", config.share_cache)
    adapters = {"adapters": config.adapters} if config.adapters else {}
    others = [((name,), model, options) for name, model in config.others.items()]
    return [(config.called, config.model, options | adapters), *others]
