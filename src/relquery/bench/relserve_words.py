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
executor, the best of four such schedulers. *Tokens*: of a prompt, on average, and what of them
the cache serves `fcfs`.
"""

GAINS = """\
Ratios at the highest load; *ours* is the better of `relserve` and `shortest`.
"""

WHY = """\
The paper reports 2.3 to 3.1 for `fcfs` over RelServe and 1.4 to 2.2 for static priorities over
it, at the largest rate of each setting. Where the ratios here are lower, mostly with the two
larger models on short prompts, it is for what these services spend their time on. Their caches
hold far more requests than OPT's, so that under `fcfs` all that has arrived decodes together, and
nobody stands in line for memory. What remains to be gained is the order of prompts, and its bound
is low: sizes of relQueries are spread evenly over 1 to 100 rows, and with sizes like that even an
ideal single server gains 1.7 to 2.3 by serving the shortest first, at these loads and with so few
relQueries. On top of it comes what no order removes: an answer of 75 tokens takes 75 steps, whose
fixed cost must be shared by many relQueries for the service to keep up with its arrivals. The
clairvoyant column shows how little is left. A longer service changes this: the queue has time to
grow, see below.
"""

LONG = """\
## Longer services

{count} relQueries, one trace a setting: nearer to a service that runs all day.
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
