"""The prompts of a stage that were kept in full, with the reused part of each marked."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from relquery.html.table import cut
from relquery.sql.record import Sent, StageRecord

_OPEN = 3  # prompts that are unfolded at first
_REUSED, _COMPUTED, _ANSWER = 400, 4_000, 1_000  # characters that are shown of each


def prompts(record: StageRecord, room: int) -> Iterator[str]:
    """The HTML of prompts, up to `room` characters in all, and a line about those left out."""
    shown = 0
    for at, one in sorted(record.full.items()):
        part = _prompt(at, one)
        if len(part) > room:
            break
        room, shown = room - len(part), shown + 1
        yield part
    if left := record.sent - shown:
        yield (
            f'<p class="small">{left:,} more prompts are not shown in full. record=N in con.sql '
            f"keeps N prompts of each stage (here {record.most:,}).</p>"
        )


def _prompt(at: int, sent: Sent) -> str:
    answer = sent.answer
    reused, output = answer.cached_tokens, answer.output_tokens
    said = answer.text if answer.text is not None else f"no answer: {answer.error}"
    head = (
        f"<b>{at + 1}</b> {answer.prompt_tokens:,} tokens: {reused:,} reused, "
        f"{max(0, answer.prompt_tokens - reused):,} computed, {output:,} decoded "
        f'<span class="said">{escape(cut(said, 80))}</span>'
    )
    about = "" if sent.is_exact else f'<p class="small">{_how(sent)}</p>'
    return (
        f"<details{' open' if at < _OPEN else ''}><summary>{head}</summary>"
        f"<pre>{_marked(sent)}</pre>{about}"
        f'<pre class="decoded">{escape(cut(said, _ANSWER))}</pre></details>'
    )


def _marked(sent: Sent) -> str:
    """The text, with the part that was reused marked."""
    text = sent.text
    end = 0 if sent.reused is None else _place(sent, text)
    reused, computed = text[:end], cut(text[end:], _COMPUTED)
    mark = f'<span class="reused">{escape(_middle_out(reused))}</span>' if reused else ""
    return f'{mark}<span class="computed">{escape(computed)}</span>'


def _place(sent: Sent, text: str) -> int:
    """The end of the reused part in the text, which has blank lines between messages."""
    left, place = sent.reused or 0, 0
    for before, span in zip((None, *sent.prompt), sent.prompt, strict=False):
        if left <= 0:
            break
        place += 2 if before is not None and before.role is not span.role else 0
        size = len(str(span.content))
        place += min(left, size)
        left -= size
    return min(place, len(text))


def _how(sent: Sent) -> str:
    if sent.reused is None:
        return "Some parts are modules, which are reused at any position. They are not marked."
    return "The end of the reused part is estimated from the number of tokens."


def _middle_out(text: str) -> str:
    """The text without its middle if it is long, because prompts repeat it."""
    if len(text) <= _REUSED:
        return text
    half = _REUSED // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters ...]\n{text[-half:]}"
