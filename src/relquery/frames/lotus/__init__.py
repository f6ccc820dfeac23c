"""LOTUS's verbs on pandas frames, run by relquery: programs run with the import changed.

import relquery.frames.lotus as lotus
from relquery.frames.lotus.models import LM

lotus.settings.configure(lm=LM(model="gpt-4o-mini"))
df.sem_filter("{review} complains about shipping")
"""

from __future__ import annotations

import logging

from relquery.errors import MissingExtraError
from relquery.frames.lotus.refused import NAMES, refusing
from relquery.frames.lotus.settings import Settings

try:
    from relquery.frames.lotus.accessors import register
except ImportError as error:
    raise MissingExtraError("relquery.frames.lotus", "pandas") from error

__all__ = ["Corpus", "LazyFrame", "logger", "settings", "web_extract", "web_search"]

logger = logging.getLogger("relquery")
settings = Settings.shared()
LazyFrame, Corpus, web_search, web_extract = (refusing(*one) for one in NAMES.items())
register()
