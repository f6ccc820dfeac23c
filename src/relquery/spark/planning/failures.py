"""Errors of Spark as ours."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from relquery import errors
from relquery.errors import ConfigError, QueryError, RelqueryError, UnsupportedQueryError

_OF_TASK = re.compile(r"^relquery\.errors\.(\w+): (.*)", re.MULTILINE | re.DOTALL)
_MISSING = re.compile(
    r"^ModuleNotFoundError: No module named '(relquery|pyarrow|duckdb)'", re.MULTILINE
)
_STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)


@contextmanager
def translated() -> Iterator[None]:
    """A block in which errors that Spark raises become errors of relquery.

    Spark's client logs each with a page of what its own code was doing; ours say what it was.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    log = logging.getLogger("SQLQueryContextLogger")
    was, log.disabled = log.disabled, True
    try:
        yield
    except AnalysisException as error:  # and ParseException
        said = _STATE.sub("", str(error)).strip()
        raise UnsupportedQueryError(
            f"Spark cannot run a part of the query: {said} Compute that part in a subquery, or in "
            "a view of Spark."
        ) from error
    except PySparkException as error:
        raise _of_task(str(error)) from error
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage() or error.java_exception)
        raise _of_task(said) from error
    finally:
        log.disabled = was


def _of_task(text: str) -> RelqueryError:
    """What a task has raised, by what Spark says of it."""
    missing = _MISSING.search(text)
    if missing is not None:
        return ConfigError(
            f"The Python of Spark's workers has no {missing[1]}. Install relquery[spark] there, or "
            "set PYSPARK_PYTHON to a Python that has it before the session starts."
        )
    found = _OF_TASK.search(text)
    if found is None:
        return QueryError(f"Spark could not run the query. {_STATE.sub('', text).strip()[-500:]}")
    kind = getattr(errors, found[1], QueryError)
    message = found[2].split("\n\n")[0].strip()
    try:
        return kind(message) if issubclass(kind, RelqueryError) else QueryError(message)
    except TypeError:  # it takes more than a message
        return RelqueryError(message)
