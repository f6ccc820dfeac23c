"""A page about a run: one HTML file that needs nothing else.

The query, its stages with their prompts as bars (reused, computed, decoded), some prompts in full,
and the first rows of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import accumulate, pairwise

import numpy as np

from relquery.arrays import Floats
from relquery.html import STYLE, cut, lines, of_columns
from relquery.report import Report
from relquery.sql.record import Recording, Sent, StageRecord

_BARS = 600  # more could not be told apart
_HEIGHT = 100
_OPEN = 3  # prompts that are unfolded at first
_REUSED, _COMPUTED, _ANSWER = 400, 4_000, 1_000  # characters that are shown of each
_ROOM = 3_000_000  # characters of prompts on a page
_ASKS = 200  # characters of a call


def bars(record: StageRecord) -> str:
    """A picture and a line about it. If there are very many prompts, several share a bar."""
    rows = np.array(record.counts, np.float64).reshape(-1, 3)
    if not len(rows):
        return ""
    prompt, cached, decoded = rows.T
    parts = np.stack([cached, np.maximum(prompt - cached, 0), decoded])
    each = -(-parts.shape[1] // _BARS)
    starts = np.arange(0, parts.shape[1], each)
    sizes = np.diff([*starts, parts.shape[1]])
    means = np.add.reduceat(parts, starts, axis=1) / sizes
    top = float(means.sum(axis=0).max()) or 1.0
    paths = "".join(
        f'<path class="{name}" d="{"".join(_path(means, part, top))}"/>'
        for part, name in enumerate(("reused", "computed", "decoded"))
    )
    what = "a prompt" if each == 1 else f"the mean of {each:,} prompts"
    return (
        f'<svg class="bars" viewBox="0 0 {len(starts)} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="Tokens of each prompt">{paths}</svg>'
        + _small(f"Each bar is {what}, in the order sent. The tallest has {top:,.0f} tokens.")
    )


def _path(means: Floats, part: int, top: float) -> Iterator[str]:
    """The rectangles of one part, on top of those of the parts before."""
    below = means[:part].sum(axis=0)
    for index, (base, height) in enumerate(zip(below, means[part], strict=True)):
        if height > 0:
            y, size = _HEIGHT * (1 - base / top), _HEIGHT * height / top
            yield f"M{index} {y:.1f}h1v{-size:.1f}h-1z"


def prompts(record: StageRecord, room: int) -> Iterator[str]:
    """The HTML of prompts, up to `room` characters in all, and a line about those left out."""
    shown = 0
    for index, prompt in sorted(record.full.items()):
        part = _prompt(index, prompt)
        if len(part) > room:
            break
        room, shown = room - len(part), shown + 1
        yield part
    if left := record.sent - shown:
        yield _small(
            f"{left:,} more prompts are not shown in full. record=N in con.sql keeps N prompts of "
            f"each stage (here {record.most:,})."
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
    about = "The end of the reused part is estimated from the number of tokens."
    if sent.reused is None:
        about = "Some parts are modules, which are reused at any position. They are not marked."
    return (
        f"<details{' open' if at < _OPEN else ''}><summary>{head}</summary>"
        f"<pre>{_marked(sent)}</pre>{'' if sent.is_exact else _small(about)}"
        f'<pre class="decoded">{escape(cut(said, _ANSWER))}</pre></details>'
    )


def _marked(sent: Sent) -> str:
    """The text, with the part that was reused marked."""
    end = _end_of_reused(sent)
    reused, computed = sent.text[:end], cut(sent.text[end:], _COMPUTED)
    mark = f'<span class="reused">{escape(_middle_out(reused))}</span>' if reused else ""
    return f'{mark}<span class="computed">{escape(computed)}</span>'


def _end_of_reused(sent: Sent) -> int:
    """The end of the reused part in the text, which has blank lines between messages."""
    reused = sent.reused or 0
    ends = accumulate(len(str(span.content)) for span in sent.prompt)
    messages = zip(ends, pairwise(sent.prompt), strict=False)
    breaks = sum(
        end < reused and message.role is not other.role for end, (message, other) in messages
    )
    return min(reused + 2 * breaks, len(sent.text))


def _middle_out(text: str) -> str:
    """The text without its middle if it is long, because prompts repeat it."""
    if len(text) <= _REUSED:
        return text
    half = _REUSED // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters ...]\n{text[-half:]}"


_STYLE = """
:root{color-scheme:light dark;--ground:#fff;--ink:#1c1c1e;--reused:#2a9d8f;--computed:#e9a23b;
--decoded:#8a6fd1;--panel:#f5f5f6}
@media (prefers-color-scheme:dark){:root{--ground:#161618;--ink:#e8e8ea;--panel:#222226}}
body{margin:0 auto;max-width:72em;padding:1em 1.2em 3em;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--panel);padding:.6em .8em;
border-radius:6px;font-size:13px;margin:.4em 0}
.small{font-size:13px;opacity:.75;margin:.2em 0 .6em}
.bars{display:block;width:100%;height:110px;background:var(--panel);border-radius:4px}
path.reused{fill:var(--reused)}path.computed{fill:var(--computed)}path.decoded{fill:var(--decoded)}
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .35em 0 .9em}
.key.reused{background:var(--reused);margin-left:0}.key.computed{background:var(--computed)}
.key.decoded{background:var(--decoded)}
pre .reused{border-bottom:2px solid var(--reused);opacity:.65}
pre .computed{border-bottom:2px solid var(--computed)}
pre.decoded{border-left:4px solid var(--decoded)}
details{margin:.25em 0}summary{cursor:pointer;overflow-wrap:anywhere}
.said{opacity:.65;font-style:italic;margin-left:.6em}
""".replace("\n", "")


def page(query: str, shown: str, size: str, report: Report, recording: Recording | None) -> str:
    """The HTML of a run. shown: a table of the result's first rows. size: the number of rows."""
    words = ("stage", "model", "agreement", "order")
    stages = of_columns(report.columns(), words) if report.stages else ""
    costs = lines([report.summary or "No LLM calls", *report.notes])
    body = [
        "<h1>relquery run</h1>",
        f"<pre>{escape(query.strip())}</pre>" if query else "",
        f'<div class="relquery">{stages}{costs}</div>',
        *_recorded(recording, report),
        f'<h2>Result</h2><div class="relquery">{shown}{lines([size])}</div>',
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>relquery run</title><style>{_STYLE}{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>"
    )


def _recorded(recording: Recording | None, report: Report) -> list[str]:
    if recording is None:
        return [_small("Prompts were not recorded. con.sql(..., record=True) keeps them.")]
    names = {stage.name: stage for stage in report.stages}
    room = _ROOM // max(1, len(recording.stages))
    parts = [
        '<p class="small"><span class="key reused"></span>reused from the cache'
        '<span class="key computed"></span>computed<span class="key decoded"></span>decoded</p>'
    ]
    for name, record in recording.stages.items():
        stage = names.get(name)
        parts.append(f"<h2>{escape(name)}</h2>")
        if stage is not None:
            parts.append(_small(cut(stage.expression, _ASKS)))
            if known := stage.ledger_hits:
                parts.append(_small(f"{known:,} answers came from the ledger and were not sent."))
        parts += [bars(record), *prompts(record, room)]
    return parts


def _small(text: str) -> str:
    return f'<p class="small">{escape(text)}</p>'
