"""LOTUS's verbs on pandas frames, run by relquery: programs run with the import changed.

import relquery.frames.lotus as lotus
from relquery.frames.lotus.models import LM

lotus.settings.configure(lm=LM(model="gpt-4o-mini"))
df.sem_filter("{review} complains about shipping")
"""

from __future__ import annotations

import logging
from typing import Any

from relquery.errors import MissingExtraError
from relquery.frames.lotus.refused import refuse_imports, refused_name

try:
    from relquery.frames.lotus import cache, models, types, vector_store
    from relquery.frames.lotus.lazyframe import LazyFrame
    from relquery.frames.lotus.settings import SHARED
    from relquery.frames.lotus.verbs import register
except ImportError as error:
    raise MissingExtraError("relquery.frames.lotus", "pandas") from error

__all__ = ["LazyFrame", "cache", "logger", "models", "settings", "types", "vector_store"]

logger = logging.getLogger("relquery")
settings = SHARED  # in place of the module, as in LOTUS
register()
refuse_imports()


def __getattr__(name: str) -> Any:
    return refused_name(name)
