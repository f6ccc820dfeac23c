"""Keys as versions before format 2 wrote them, under which older ledgers have their answers.

A hash of Python's literals: the model's name and the settings as `written`; then for each span its
marks, role, reuse, position and kind, the bytes of its content, and that content. Names of classes
and fields are part of it, so `tests/ledger/test_key_format.py` holds the digests of every kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum

from relquery.prompt import Compared, Prompt, Reuse, Role, Sampling, Span

_FIRST_SETTINGS = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "labels")


def older_keys(model: str, prompts: Iterable[Prompt], sampling: Sampling) -> list[bytes]:
    """One key per prompt, in the format of ledgers before format 2."""
    settings = written((model, _settings(sampling)))
    start = hashlib.sha256(settings.encode("utf-8", "surrogatepass"))
    known: dict[int, tuple[Span, bytes]] = {}
    keys = []
    for prompt in prompts:
        parts = []
        for span in prompt:
            # Spans of equal cells are one object, so each is written once; the tuple keeps it
            # alive, since an id is only unique among living objects.
            if (part := known.get(id(span))) is None:
                part = known[id(span)] = (span, _written(span))
            parts.append(part[1])
        digest = start.copy()
        digest.update(b"".join(parts))
        keys.append(digest.digest())
    return keys


def _settings(sampling: Sampling) -> tuple[object, ...]:
    """The settings in the key. Newer ones count only if they are set, so old keys stay valid."""
    first = [getattr(sampling, name) for name in _FIRST_SETTINGS]
    if isinstance(sampling, Compared):
        first.append(sampling.texts)
    later = [
        (setting.name, getattr(sampling, setting.name))
        for setting in fields(sampling)
        if setting.name not in (*_FIRST_SETTINGS, "texts")
        and getattr(sampling, setting.name) != setting.default
    ]
    return (*first, *later)


def written(value: object) -> str:
    """A value as text: literals as Python writes them, of objects what is not as by default.

    So a field that an object gets later changes no key, unless it is set.
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(written, value))}{',' * (len(value) == 1)})"
    if isinstance(value, Enum):
        return str(value)
    if not is_dataclass(value):
        return repr(value)
    given = (
        (setting.name, getattr(value, setting.name), setting.default) for setting in fields(value)
    )
    set_ = ", ".join(f"{name}={written(item)}" for name, item, default in given if item != default)
    return f"{type(value).__name__}({set_})"


def _written(span: Span) -> bytes:
    content = span.content if isinstance(span.content, str) else written(span.content)
    kind = type(span.content).__name__
    data = content.encode("utf-8", "surrogatepass")
    begins = f"{'message ' if span.begins else ''}{'open ' if span.open else ''}"
    begins += "raw " if span.raw else ""
    # Most spans by far are such; reading the values of enums takes longer than all else here.
    is_usual = span.role is Role.USER and span.reuse is Reuse.PREFIX
    names = "user prefix" if is_usual else f"{span.role.value} {span.reuse.value}"
    return f"{begins}{names} {span.position} {kind} {len(data)} ".encode() + data
