"""What the document of `scripts/bench sql` says beside its tables."""

from __future__ import annotations

INTRODUCTION = """\
What a user of `con.sql` gains, and the parts of the engine that it rests on. Both sides of each
ratio run in one run, after a warm-up, on the path that a user takes, each on an engine of its own
with an empty cache. Sides that take long take turns, step by step, each with a clock of its own
turns, so that the slow minutes of a machine that others share fall on all alike. Each section says
when and how it was measured.
"""

MODEL = """\
`{model}`, {parameters:.1f} M parameters, embeddings aside; its
tokenizer is a byte-level BPE of {vocabulary:,} tokens, trained on the table's text.
"""

QUERIES = """\
Movies, {rows:,} rows: all eight columns for the filter (T1, two-token answers), and `reviewcontent,
movieinfo` for the projection (T2, 16-token answers), prompts as in paper 000, appendices A and C.
Seconds include planning, ordering and tokenization. *No cache*: the original order without prefix
caching.
"""

PREFILL = """\
### Prefill

`transformers`' own network with its SDPA attention on the same prompts, best of three, against the
engine without prefix caching.
"""

DECODE = """\
### Decode

Steps after the prompts are computed, in tokens per second.
"""

SHARED = """\
### A shared context

{requests} requests decode behind {shared:,} tokens that all of them share and some {own} of their
own. *Unshared*: the same engine with `segment_sharing=False`, which reads the shared tokens once
for each request. *Without*: the same requests without the shared tokens, which is as fast as
sharing could ever make them. What sharing is worth depends on what else a step takes, which
differs with the network and the format of its numbers.
"""

SOLVER = """\
Paper 000's GGR over RateBeer with the dependency of its names and numbers, compiled beforehand.
"""
