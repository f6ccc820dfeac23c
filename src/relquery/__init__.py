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
    from relquery import native, span
    from relquery.backends.embedders import load_embedder
    from relquery.backends.local.service import Engine, Job
    from relquery.backends.scoring import Scores
    from relquery.cascade.cascade import CascadeResult, run_cascade
    from relquery.connection import Connection, connect
    from relquery.demo.files import table_path as demo_table
    from relquery.errors import PartialResultWarning, RelqueryError
    from relquery.evaluation.comparison import Comparison
    from relquery.evaluation.evaluate import evaluate
    from relquery.evaluation.evaluation import Evaluation
    from relquery.frames.frame import Frame, frame
    from relquery.ir.optimize import optimize
    from relquery.markup.program import schema
    from relquery.markup.schema import Schema
    from relquery.markup.schemas import PromptResult
    from relquery.prices.price import Price
    from relquery.prompt import Sampling
    from relquery.reordering.dependencies import Dependency
    from relquery.reordering.prompts.answers import Answers
    from relquery.reordering.prompts.batch import Batch
    from relquery.reordering.prompts.prompts import Template
    from relquery.reordering.reorder import reorder
    from relquery.reordering.schedule import Schedule
    from relquery.report import Report
    from relquery.retrieval.embedder import Embedder
    from relquery.sql.preview import Preview
    from relquery.sql.result import Result, RowError

_HOMES = {
    "connect": "relquery.connection:connect",
    "Connection": "relquery.connection:Connection",
    "Engine": "relquery.backends.local.service:Engine",
    "Job": "relquery.backends.local.service:Job",
    "Scores": "relquery.backends.scoring:Scores",
    "run_cascade": "relquery.cascade.cascade:run_cascade",
    "CascadeResult": "relquery.cascade.cascade:CascadeResult",
    "evaluate": "relquery.evaluation.evaluate:evaluate",
    "Evaluation": "relquery.evaluation.evaluation:Evaluation",
    "Comparison": "relquery.evaluation.comparison:Comparison",
    "Preview": "relquery.sql.preview:Preview",
    "frame": "relquery.frames.frame:frame",
    "Frame": "relquery.frames.frame:Frame",
    "Result": "relquery.sql.result:Result",
    "RowError": "relquery.sql.result:RowError",
    "Report": "relquery.report:Report",
    "Schedule": "relquery.reordering.schedule:Schedule",
    "Template": "relquery.reordering.prompts.prompts:Template",
    "Batch": "relquery.reordering.prompts.batch:Batch",
    "Answers": "relquery.reordering.prompts.answers:Answers",
    "Dependency": "relquery.reordering.dependencies:Dependency",
    "Price": "relquery.prices.price:Price",
    "reorder": "relquery.reordering.reorder:reorder",
    "optimize": "relquery.ir.optimize:optimize",
    "Schema": "relquery.markup.schema:Schema",
    "schema": "relquery.markup.program:schema",
    "PromptResult": "relquery.markup.schemas:PromptResult",
    "span": "relquery.span",
    "native": "relquery.native",
    "Sampling": "relquery.prompt:Sampling",
    "Embedder": "relquery.retrieval.embedder:Embedder",
    "load_embedder": "relquery.backends.embedders:load_embedder",
    "RelqueryError": "relquery.errors:RelqueryError",
    "PartialResultWarning": "relquery.errors:PartialResultWarning",
    "load_ipython_extension": "relquery.notebook:load_ipython_extension",
    "demo_table": "relquery.demo.files:table_path",
}

__all__ = [
    "Answers",
    "Batch",
    "CascadeResult",
    "Comparison",
    "Connection",
    "Dependency",
    "Embedder",
    "Engine",
    "Evaluation",
    "Frame",
    "Job",
    "PartialResultWarning",
    "Preview",
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
    "Template",
    "connect",
    "demo_table",
    "evaluate",
    "frame",
    "load_embedder",
    "native",
    "optimize",
    "reorder",
    "run_cascade",
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
