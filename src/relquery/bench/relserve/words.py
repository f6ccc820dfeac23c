"""What the document of `relquery bench relserve` says beside its tables."""

from __future__ import annotations

SETTING = """\
Services of relQueries in the manner of paper 003, section 5: {count} relQueries of 1 to 100 rows,
of five types with answers of at most 5, 10, 5, 50 and 100 tokens, Poisson arrivals; rows and
arrivals are drawn anew for each of {seeds} traces a setting, and means are averaged over these.
Every policy serves the same traces, on the engine's own loop, block pool and prefix cache.
"""

SIMULATED = """\
## Simulated

Mean latencies in seconds on a virtual clock, with the costs of three models on A100 GPUs that are
derived in `engine/costs.py`. *Load*: relQueries that arrive, as a share of what `fcfs` serves
when all come at once. The paper's rates are 0.5 to 1.0 relQueries per second; its Table 6 shows
what that is as a load: at the highest rate service takes 1.47 times as long as the arrivals.
*Clairvoyant*: shortest remaining time first by the true lengths of all answers, on the same
executor, the best of six such schedulers. *Tokens*: of a prompt, on average, and what of them
the cache serves `fcfs`. *Waiting*: share of the latencies under `fcfs` before a relQuery's first
request starts.
"""

GAINS = """\
Ratios at the highest load; *ours* is the better of `relserve` and `shortest`.
"""

WHY = """\
The paper reports 2.3 to 3.1 for `fcfs` over RelServe and 1.4 to 2.2 for static priorities over
it, at the largest rate of each setting. Here OPT comes near the first or exceeds it on all tables;
the two larger models do over films and where prompts are long, and not on beers and contributions,
whose prompts are short. There a scheduler that knows how long every answer will be gains hardly
more on the same executor (last column; below 1, ours does better, so that it is no lower bound).

Why is known in part. *Waiting* is what an order of prompts can shorten the most, and it is less
with the larger models, long prompts aside: their caches hold as many requests as may run at all
(256), so that under `fcfs`, too, much of what has arrived is under way, while a GPU of OPT has
room for some 120 requests over beers. And an open answer takes some 75 steps, each of which reads
all weights (38 and 44 ms): to keep up with what arrives, many relQueries must share these steps,
in whatever order their prompts are computed. But *waiting* tells neither films from beers, nor
the contributions of OPT from those of the others: there is more to it that is not shown here.

`relserve` gains little over `static` where prompts are short: it decodes on its own to end a tail
sooner, and pays with steps that are not shared; `shortest` does not, and stays ahead of `static`
everywhere at that load.
"""

LONG = """\
## Longer services

{count} relQueries of one trace a setting, as fast as `fcfs` can serve them at most.
"""

PAPER = """\
## Beside the paper's seconds

OPT-13B over the beers under `relserve`: seconds of service of 100 relQueries, at the rates of
Table 6.
"""

PAPER_AFTER = """\
Prompts here have fewer tokens than the paper's 174, so the service keeps up a little longer. Over
films at 1.0 relQueries per second the paper tells {fcfs:.0f} s for vLLM and {relserve:.0f} s for
RelServe (section 1); here `fcfs` takes {our_fcfs:.1f} s and `relserve` {our_relserve:.1f} s.
Figures 9 and 12 of the paper are drawings whose values its text does not give.
"""

ARRANGEMENTS = """\
## Which half gains what

Mean latencies at the highest load, as multiples of `relserve` (Fig. 10): prompts always first in
transition (`-pp`), decodes always first (`-dp`), priorities alone (`-dpu`), arrangement alone
(`-aba`).
"""

PARTS = """\
## Where the time goes

OPT-13B over the beers at the highest load (Fig. 11): seconds on average.
"""

THRESHOLDS = """\
## Starvation thresholds

OPT-13B over the beers under `relserve` (Fig. 12), seconds; *unit waiting*: the longest that any
relQuery waited, over its requests (eq. 13).
"""

ENGINE = """\
## On this machine

`{model}`, {count} relQueries over the beers at {load:g} of saturation ({rate:.2f} relQueries per
second), one trace for all policies, served one after another and again in reverse with a cache of
{cache:,} tokens; averages of both.
*Scheduling*: share of the time spent in the policy. Answers under all policies are compared token
by token.
"""

CROWDED = """\
## A long queue

Milliseconds of a step's scheduling with {requests:,} requests waiting in {relqueries:,}
relQueries; the first step takes in all that have come.
"""
