"""A ledger that many machines share: a folder that all of them see.

Each writer appends to a file of its own, an answer a line. So nothing is ever locked, and a line
that a crash has cut short is the last of its file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from relquery.ledger.claims import HeldClaim
from relquery.ledger.keys import FORMAT, OLDER, Keys, kept_text
from relquery.ledger.stored import Fact, known_answer, scores_as_json, scores_from_json
from relquery.prompt import Answer

SUFFIX = ".answers"


@dataclass(slots=True)
class FolderLedger:
    """The answers of one task: what its other attempts have got, and where its own go."""

    path: Path
    """The folder."""
    task: str
    """The task, with which the names of the files of all its attempts begin."""
    attempt: str
    """This attempt."""
    stored: int = 0
    """Answers stored through this object."""
    lent: set[bytes] = field(default_factory=set)
    """Keys of answers that `know` was told of."""
    _known: dict[bytes, Answer] = field(default_factory=dict)
    _read: dict[Path, int] = field(default_factory=dict)
    _file: int | None = None

    @property
    def key_format(self) -> int:
        """See AnswerStore. What `know` was told of may come from an earlier version."""
        return OLDER if self.lent else FORMAT

    @property
    def has_answers(self) -> bool:
        """Whether any attempt has written an answer."""
        self._refresh()
        return bool(self._known)

    @property
    def has_attempts(self) -> bool:
        """Whether any attempt has begun to write."""
        return next(self.path.glob(f"{self.task}-*{SUFFIX}"), None) is not None

    def know(self, lines: Iterable[str]) -> None:
        """Add answers from lines of other files. Lines that cannot be read are skipped."""
        for line in lines:
            with suppress(ValueError, TypeError):  # the last line of a file may be half of one
                answers = dict(_answers(line.encode()))
                self._known.update(answers)
                self.lent.update(answers)

    def find(self, keys: Keys) -> dict[int, Answer]:
        """The known answers, by index of the prompt. Looks for new ones of other attempts."""
        self._refresh()
        return keys.find(lambda _: self._known)

    @property
    def claims(self) -> None:
        """Spark gives each input to one task, so nobody else asks it."""
        return

    def put(
        self,
        answers: Iterable[tuple[bytes, Answer]],
        *,
        are_new: bool = True,
        facts: Sequence[Fact] = (),
        claims: Sequence[HeldClaim] = (),
    ) -> None:
        """Store the valid answers durably, and nothing else; see Ledger. Raises OSError."""
        del facts, claims
        valid = [(key, answer) for key, answer in answers if kept_text(answer) is not None]
        if not valid:
            return
        if self._file is None:
            name = self.path / f"{self.task}-{self.attempt}{SUFFIX}"
            self._file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        _append(self._file, b"".join(_line(key, answer) for key, answer in valid))
        self.stored += len(valid) if are_new else 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _refresh(self) -> None:
        """Read what all attempts have written since the last time, this one included."""
        for path in self.path.glob(f"{self.task}-*{SUFFIX}"):
            begin = self._read.get(path, 0)
            lines, self._read[path] = read_lines(path, begin)
            self._known.update(lines)


def _append(file: int, content: bytes) -> None:
    """Write all of it durably, or nothing: the next line must not follow half of one."""
    begin = os.fstat(file).st_size
    try:
        while content:
            content = content[os.write(file, content) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, begin)
        raise


def read_lines(path: Path, begin: int = 0) -> tuple[dict[bytes, Answer], int]:
    """The answers of a file from a place on, and the place after the last whole line."""
    with path.open("rb") as file:
        file.seek(begin)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    return dict(_answers(whole)), begin + len(whole)


def _answers(lines: bytes) -> Iterator[tuple[bytes, Answer]]:
    for line in lines.splitlines():
        key, text, prompt_tokens, output_tokens, scores = json.loads(line)
        known = None if scores is None else scores_from_json(scores)
        yield bytes.fromhex(key), known_answer(text, prompt_tokens, output_tokens, known)


def _line(key: bytes, answer: Answer) -> bytes:
    scores = None if answer.scores is None else scores_as_json(answer.scores)
    # As ASCII: also texts with lone surrogates, and no line break but the last.
    fields = (key.hex(), answer.text, answer.prompt_tokens, answer.output_tokens, scores)
    return json.dumps(fields).encode() + b"\n"
