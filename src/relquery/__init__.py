"""LLM queries over relational data that reuse attention states wherever this keeps the meaning.

import relquery as rq

con = rq.connect(model="demo")
con.register("movies", rq.demo_table("movies"))
con.sql("SELECT movietitle, LLM('Is the review positive?', reviewcontent) FROM movies").df()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relquery import span
    from relquery.backends.scoring.calibration import fit_temperature
    from relquery.backends.scoring.scores import Scores
    from relquery.backends.service.service import Engine, Job
    from relquery.connection import Connection, connect
    from relquery.demo.files import table_path as demo_table
    from relquery.errors import PartialResultWarning, RelqueryError
    from relquery.frames.frame import Frame, frame
    from relquery.ir.optimize import optimize
    from relquery.markup.program import schema
    from relquery.markup.read.schema import Schema
    from relquery.markup.schemas import PromptResult
    from relquery.prompt import Sampling
    from relquery.report import Report
    from relquery.sql.result import Result, RowError
    from relquery.table.cost.price import Price
    from relquery.table.dependencies.dependencies import Dependency
    from relquery.table.reorder import reorder
    from relquery.table.schedule import Schedule

_HOMES = {
    "connect": "relquery.connection:connect",
    "Connection": "relquery.connection:Connection",
    "Engine": "relquery.backends.service.service:Engine",
    "Job": "relquery.backends.service.service:Job",
    "Scores": "relquery.backends.scoring.scores:Scores",
    "fit_temperature": "relquery.backends.scoring.calibration:fit_temperature",
    "frame": "relquery.frames.frame:frame",
    "Frame": "relquery.frames.frame:Frame",
    "Result": "relquery.sql.result:Result",
    "RowError": "relquery.sql.result:RowError",
    "Report": "relquery.report:Report",
    "Schedule": "relquery.table.schedule:Schedule",
    "Dependency": "relquery.table.dependencies.dependencies:Dependency",
    "Price": "relquery.table.cost.price:Price",
    "reorder": "relquery.table.reorder:reorder",
    "optimize": "relquery.ir.optimize:optimize",
    "Schema": "relquery.markup.read.schema:Schema",
    "schema": "relquery.markup.program:schema",
    "PromptResult": "relquery.markup.schemas:PromptResult",
    "span": "relquery.span",
    "Sampling": "relquery.prompt:Sampling",
    "RelqueryError": "relquery.errors:RelqueryError",
    "PartialResultWarning": "relquery.errors:PartialResultWarning",
    "demo_table": "relquery.demo.files:table_path",
}

__all__ = [
    "Connection",
    "Dependency",
    "Engine",
    "Frame",
    "Job",
    "PartialResultWarning",
    "Price",
    "PromptResult",
    "RelqueryError",
    "Report",
    "Result",
    "RowError",
    "Sampling",
    "Schedule",
    "Schema",
    "Scores",
    "connect",
    "demo_table",
    "fit_temperature",
    "frame",
    "optimize",
    "reorder",
    "schema",
    "span",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("relquery")
    if name not in _HOMES:
        raise AttributeError(f"module 'relquery' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    home = import_module(module)
    return getattr(home, attribute) if attribute else home


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__name__", "__path__", "__version__"]
