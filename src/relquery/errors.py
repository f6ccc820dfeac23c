"""Every error that relquery raises, as one tree.

RelqueryError
├── QueryError               the SQL text or what it names is wrong
│   ├── SqlSyntaxError       does not parse; carries line, column and a caret
│   ├── MarkupError          prompt markup that is wrong; carries line, column and a caret
│   ├── UnknownColumnError   names the nearest column
│   ├── UnknownTableError    names the nearest table
│   ├── LateQueryError       found after calls were paid for
│   └── UnsupportedQueryError  valid SQL that relquery does not run yet
├── TableError               a file or object cannot be read as a table
├── UnknownVerbError         a frame has no method of this name
├── ConfigError              a setting is out of range or contradicts another
├── CancelledError           what was asked has been cancelled
├── PendingError             what was submitted as a batch has no answers yet
├── ModelError               a model cannot be found, loaded or run
│   ├── BudgetError          what may be spent is spent
│   ├── UnusableAnswersError  a model answers all alike with what is no answer
│   ├── EngineEndedError     the process of an engine has ended
│   ├── UnsupportedNetworkError  a network that the local engine cannot compute
│   └── MissingExtraError    an optional dependency is not installed
└── RequestError             one request cannot be served; becomes its row's error
    ├── PromptTooLongError   the prompt does not fit the model's context or the cache
    └── DeadlineError        a job that cannot be done in time; nothing of it is computed

Warnings are issued, not raised:
PartialResultWarning         some rows of a result carry an error
LedgerWarning                answers could not be stored, and would be asked again
IndexWarning                 vectors or an index could not be stored, and would be made again
SamplingWarning              a server does not take a setting, and answers without it
OrderWarning                 the order of fields changes answers, so it is pinned
"""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType

from rich.cells import cell_len


class RelqueryError(Exception):
    """Root of all errors of this package. They can be pickled, whatever their makers take."""

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (type(self), self.args, vars(self))


class QueryError(RelqueryError):
    """The query, or something that it names, is wrong."""


class SqlSyntaxError(QueryError):
    """SQL that does not parse. `line` and `column` count from 1."""

    def __init__(self, message: str, sql: str, line: int, column: int) -> None:
        self.line, self.column = line, column
        super().__init__(_pointed(message, sql, line, column))


class MarkupError(QueryError):
    """Prompt markup that does not parse, or a prompt that does not fit its schema.

    `line` and `column` count from 1; 0 where the error is in no place.
    """

    def __init__(self, message: str, text: str = "", line: int = 0, column: int = 0) -> None:
        self.line, self.column = line, column
        super().__init__(_pointed(message, text, line, column) if line else message)


class UnknownColumnError(QueryError):
    """A column that no table of the query has.

    complete: whether `columns` has all columns, not just the nearest.
    """

    def __init__(
        self, column: str, table: str, columns: Iterable[str], *, complete: bool = True
    ) -> None:
        self.column, self.complete = column, complete
        self.columns = known = list(columns)
        listing = f" {'Columns' if complete else 'Nearest'}: {', '.join(known)}." if known else ""
        super().__init__(
            f"Column '{column}' is not in {table}.{listing}" + did_you_mean(column, known)
        )


class UnknownTableError(QueryError):
    """A table that was not registered and is not in the database. table: its name."""

    def __init__(self, table: str, tables: Iterable[str]) -> None:
        self.table = table
        super().__init__(
            unknown("table", table, sorted(tables))
            + f" Register it with con.register('{table}', data) or --table {table}=FILE."
        )


class LateQueryError(QueryError):
    """An error that no check could find before the answers were known.

    calls: how many were made. kept: whether the ledger has their answers.
    """

    def __init__(self, message: str, calls: int, *, kept: bool) -> None:
        self.calls, self.kept = calls, kept
        made = "a call was made" if calls == 1 else f"{calls} calls were made"
        answers = "answer is" if calls == 1 else "answers are"
        where = (
            f"The {answers} in the ledger, so a corrected query only asks what is new; "
            "TRY(...) returns NULL if an expression fails."
            if kept
            else f"The {answers} not kept."
        )
        said = message if message.endswith(".") else f"{message}."
        super().__init__(f"{said} This was found after {made}. {where}")


class UnsupportedQueryError(QueryError):
    """Valid SQL of a form that relquery does not run; the message names a rewrite."""


class TableError(RelqueryError):
    """A file or object that cannot be read as a table."""


class UnknownVerbError(RelqueryError, AttributeError):
    """A method or property that a frame does not have; the message names what to write."""


class ConfigError(RelqueryError, ValueError):
    """A setting that is out of range, or that contradicts another."""


class CancelledError(RelqueryError):
    """A request that was cancelled, and so has no answer."""


class PendingError(RelqueryError):
    """Batches that were submitted and have no answers yet. Running the same again goes on.

    provider: its name. batches: how many there are. requests: in them; done: those with a result.
    hours: until the last of them has ended, at most.
    """

    def __init__(
        self, provider: str, batches: int, requests: int, done: int, hours: int = 24
    ) -> None:
        self.provider, self.batches, self.requests = provider, batches, requests
        self.done, self.hours = done, hours
        them, are = ("A batch", "is") if batches == 1 else (f"{batches} batches", "are")
        super().__init__(
            f"{them} of {requests:,} requests {are} with {provider}, {done:,} of them done. It "
            f"takes up to {hours} hours, and is mostly done much sooner. Run the same query with "
            "the same ledger to go on."
        )

    @classmethod
    def of(cls, errors: Sequence[PendingError]) -> PendingError:
        """Several of one provider as one."""
        return cls(
            errors[0].provider,
            sum(error.batches for error in errors),
            sum(error.requests for error in errors),
            sum(error.done for error in errors),
            max(error.hours for error in errors),
        )


class ModelError(RelqueryError):
    """A model that cannot be found, loaded or run."""


class BudgetError(ModelError):
    """A budget that has no room for another call. Answers that have come are kept in the ledger."""


class UnusableAnswersError(ModelError):
    """A model whose first answers are all alike of no use, so that no more are asked for."""


class EngineEndedError(ModelError):
    """The process of an engine has ended while it was asked."""


class UnsupportedNetworkError(ModelError):
    """A network that the local engine cannot compute. why: as part of a sentence, by default the
    message."""

    def __init__(self, message: str, why: str = "") -> None:
        self.why = why or message
        super().__init__(message)


class MissingExtraError(ModelError, ImportError):
    """A feature whose optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs an optional dependency. Install it: pip install 'relquery[{extra}]'"
        )


class RequestError(RelqueryError):
    """One request that cannot be served. It becomes the error of its row; other rows continue."""


SHORTEN = "Send a shorter prompt."
"""The remedy where no setting helps. Where prompts are made of columns, more can be said."""
_TOO_LONG = re.compile(r"The prompt has [\d,]+ (tokens|characters)")


def is_too_long(error: str) -> bool:
    """Whether the error of an answer says that the prompt is too long: its text is all that is
    known of it."""
    return _TOO_LONG.match(error) is not None


class PromptTooLongError(RequestError):
    """A prompt that, with room for an answer, exceeds a limit counted in tokens."""

    def __init__(self, tokens: int, limit: int, what: str, remedy: str = "") -> None:
        super().__init__(
            f"The prompt has {tokens} tokens; {what} has room for {limit - 1} and one answer "
            f"token. {remedy or SHORTEN}"
        )


class DeadlineError(RequestError):
    """A relQuery that cannot have all answers before its deadline; nothing of it was computed.

    `estimate`: seconds until the last answer. `left`: seconds until the deadline.
    """

    def __init__(self, estimate: float, left: float) -> None:
        self.estimate, self.left = estimate, left
        if left <= 0:
            super().__init__(
                f"The deadline of its relQuery passed {-left:.3g} s ago. It counts from the "
                "relQuery's first request. Ask as another one, or give a later deadline."
            )
            return
        super().__init__(
            f"The last answer is expected in {estimate:.3g} s, but the deadline is in "
            f"{left:.3g} s. Give a later deadline, fewer rows or a lower max_tokens."
        )


class PartialResultWarning(UserWarning):
    """Some rows of a result carry an error; `result.errors` lists them."""


class PromptWarning(UserWarning):
    """A prompt that seems to name a field that does not exist."""


class LedgerWarning(UserWarning):
    """Answers that could not be written to the ledger file."""


class IndexWarning(UserWarning):
    """Vectors or an index that could not be written to the folder of indexes."""


class SamplingWarning(UserWarning):
    """A server that rejects a setting and answers with its own default instead."""


class OrderWarning(UserWarning):
    """A call whose answers change with the order of its fields; they are sent as written."""


def warn(message: str | Warning, kind: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line that called this package, if this thread has one."""
    level, outermost = 1, 2
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == __package__:
            outermost = level + 1
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=min(outermost, level - 1))


def _again(
    kind: type[RelqueryError], given: tuple[object, ...], fields: Mapping[str, object]
) -> object:
    """An error as it was pickled: its message is written already."""
    error = kind.__new__(kind)
    error.args = given
    vars(error).update(fields)
    return error


def _pointed(message: str, text: str, line: int, column: int) -> str:
    """A message with the line that it is about, and a caret below."""
    lines = text.splitlines() or [""]
    shown = lines[min(line, len(lines)) - 1]
    place = column - 1
    if place > _WIDEST:  # of a very long line, what is around the place
        shown, place = shown[place - _WIDEST // 2 :], _WIDEST // 2
    before = shown[:place].split("\t")  # a tab is as wide as the one above it
    caret = "\t".join(" " * cell_len(part) for part in before) + "^"
    return f"{message} (line {line}, column {column})\n  {shown[: 2 * _WIDEST]}\n  {caret}"


_WIDEST = 1_000
"""Columns before a place in a line that is shown."""


def unknown(what: str, name: object, known: Iterable[str], *, of: str = "", more: str = "") -> str:
    """What is wrong with a name that is not among those known.

    of: whose, such as "tree" for an option of tree. more: further valid values, after a comma.
    """
    whose, names = f" of {of}" if of else "", list(known)
    listing, hint = ", ".join(names) or "none", did_you_mean(str(name), names)
    return f"The {what} {name!r}{whose} is not known. Known: {listing}{more}.{hint}"


def not_embedded(what: str, token: int, word: str, known: int) -> str:
    """What is wrong with a token that a network has no embedding for, as where a tokenizer has
    words that were added to it alone. known: how many it has embeddings for."""
    return (
        f"The {what} has the token {token}{f' ({word!r})' if word else ''}, but the model has "
        f"embeddings for the tokens 0 to {known - 1}. If words were added to its tokenizer, its "
        "embeddings must be resized, too."
    )


def unknown_value(name: str, value: object, known: Iterable[str], *, of: str) -> str:
    """What is wrong with the value of a parameter. of: whose, such as "sem_join"."""
    names = list(known)
    hint = did_you_mean(str(value), names)
    return f"{name}={value!r} is not known to {of}. Known: {', '.join(names)}.{hint}"


def type_of(value: object) -> str:
    """The type of a value for a message, with its article: "an int", "a list"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def did_you_mean(name: str, known: Iterable[str], alike: float = 0.5) -> str:
    """` Did you mean 'x'?` for the nearest known name, or an empty string.

    alike: how similar it must be at least, from 0 to 1 (difflib's ratio).
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=alike)
    return f" Did you mean '{by_lower[nearest[0]]}'?" if nearest else ""
