"""What the document of `scripts/bench relserve` says beside its tables."""

from __future__ import annotations

INTRODUCTION = """\
Services of relQueries in the manner of paper 003, section 5: relQueries of 1 to 100 rows, of five
types with answers of at most 5, 10, 5, 50 and 100 tokens, Poisson arrivals. Every policy serves the
same traces, on the engine's own loop, block pool and prefix cache. *Ours* is the better of
`relserve` and `shortest`.

The paper's clients draw the rows of every relQuery with one and the same seed: all relQueries over
a table read the first rows of one sample. So relQueries of one type share prompts, the cache serves
more, and a scheduler that knows what is left gains more. That is the setting to hold against the
paper, and its figures come first. Where each relQuery draws rows of its own, what can be gained is
less; there the measure is a scheduler that knows the length of every answer.

Each section says when and how it was measured. The simulated ones run on a virtual clock, on which
a busy machine changes nothing.
"""

SHARED = """\
Mean latencies in seconds, with the costs of three models on A100 GPUs that are derived in
`engine/cost/accelerators.py`: {count} relQueries a trace, {seeds} traces a setting, of which means
are taken.
*Load*: relQueries that arrive, as a share of what `fcfs` serves when all come at once. The paper's
rates are 0.5 to 1.0 relQueries per second; its Table 6 shows what that is as a load: at the highest
rate service takes 1.47 times as long as the arrivals. `static` computes prompts before it decodes,
as the paper's baseline does; `static-chunked` has the same priorities and mixes chunks of prompts
into the steps that decode, as engines of today do by default.
"""

GAINS = """\
Ratios at the highest load. *Tokens*: of a prompt, on average, and what of them the cache serves
`fcfs`. *Waiting*: share of the latencies under `fcfs` before a relQuery's first request starts.
The paper reports 2.3 to 3.1 for vLLM over RelServe, and 1.4 to 2.2 for static priorities over it,
at the largest rate of each setting; its prompts are longer, and its steps may hold 8,192 tokens.
"""

LONG = """\
### Longer services

{count} relQueries of one trace a setting, as fast as `fcfs` can serve them at most.
"""

PAPER = """\
### Beside the paper's seconds

OPT-13B over the beers under `relserve`: seconds of service of 100 relQueries, at the rates of
Table 6.
"""

PAPER_AFTER = """\
Prompts here have fewer tokens than the paper's 174, so the service keeps up longer. Over films at
1.0 relQueries per second the paper tells {fcfs:.0f} s for vLLM and {relserve:.0f} s for RelServe
(section 1); here `fcfs` takes {our_fcfs:.1f} s and `relserve` {our_relserve:.1f} s.
Figures 9 and 12 of the paper are drawings whose values its text does not give.
"""

ARRANGEMENTS = """\
### Which half gains what

Mean latencies at the highest load, as multiples of `relserve` (Fig. 10): prompts always first in
transition (`-pp`), decodes always first (`-dp`), priorities alone (`-dpu`), arrangement alone
(`-aba`).
"""

PARTS = """\
### Where the time goes

OPT-13B over the beers at the highest load (Fig. 11): seconds on average.
"""

THRESHOLDS = """\
### Starvation thresholds

OPT-13B over the beers under `relserve` (Fig. 12), seconds; *unit waiting*: the longest that any
relQuery waited, over its requests (eq. 13).
"""

FRESH = """\
The same models and tables at the highest load; each relQuery draws rows of its own. {count}
relQueries a trace, {seeds} traces a setting. *Clairvoyant*: shortest remaining time first by the
true lengths of all answers, on the same executor, the best of six such schedulers.
"""

FRESH_GAINS = """\
Where prompts are short, the clairvoyant itself gains little over `fcfs`. Below 1 in the last column
ours does better than the clairvoyant, which is no lower bound: which relQuery is the shortest
depends on how the fixed costs of the steps are shared.
"""

ENGINE = """\
`{model}`, {count} relQueries over the beers that share rows, at {load:g} of saturation
({rate:.2f} relQueries per second). All policies serve the same trace, each with a cache of
{cache:,} tokens and a clock of its own: they take turns, step by step, and whoever is behind goes
on, so that the slow minutes of a machine that others share fall on all alike. *Scheduling*: share
of the time spent in the policy. Answers under all policies are compared token by token.
"""

CROWDED = """\
Milliseconds of a step's scheduling with {requests:,} requests waiting in {relqueries:,}
relQueries; the first step takes in all that have come.
"""
