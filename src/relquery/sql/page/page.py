"""The whole page: the query, its stages, its prompts, and the first rows of its result."""

from __future__ import annotations

from html import escape

from relquery.html.table import STYLE, cut, lines, of_columns
from relquery.report import Report
from relquery.sql.page.bars import bars
from relquery.sql.page.prompts import prompts
from relquery.sql.record import Recording

_ROOM = 3_000_000  # characters of prompts on a page
_ASKS = 200  # characters of a call

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
    stages = of_columns(report.columns(), ("stage", "agreement", "order")) if report.stages else ""
    body = [
        "<h1>relquery run</h1>",
        f"<pre>{escape(query.strip())}</pre>" if query else "",
        f'<div class="relquery">{stages}{lines([report.summary or "No LLM calls"])}</div>',
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
        return [
            '<p class="small">Prompts were not recorded. con.sql(..., record=True) keeps them.</p>'
        ]
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
            parts.append(_remark(cut(stage.expression, _ASKS)))
            if stage.ledger_hits:
                parts.append(
                    _remark(
                        f"{stage.ledger_hits:,} answers came from the ledger and were not sent."
                    )
                )
        parts += [bars(record), *prompts(record, room)]
    return parts


def _remark(text: str) -> str:
    return f'<p class="small">{escape(text)}</p>'
