"""What the document of `relquery bench prefill-only` says beside its tables."""

from __future__ import annotations

INTRODUCTION = """\
What paper 004 (PrefillOnly) measures, on this machine: how long an input may be, how long requests
wait that need no decode, and what a SQL filter takes whose labels are scored. Each section says
when and how it was measured.
"""

LENGTHS = """\
By what is kept and what is cut, in the same memory (Fig. 10, Table 2):
"""

TRAFFIC = """\
On `{model}`, {parameters:.1f} M parameters: {fixed:.1f} ms for a step and {slope:.3f} ms for each
token of short prompts, which is {speed:,.0f} tokens per second. It is wide for its depth, so that
attention does not outweigh all else as it would in a narrow one. The workloads of Table 1, of
random token ids:

- *posts* (WL1, post recommendation), with lengths times {scale:g}: {posts:,} requests, {each} of
  each of {users} users. A user's history has {history:,} tokens on average (normal, drawn again
  where it leaves the paper's bounds), a post {post}. The cache holds {posts_cache:,} tokens: a
  quarter of the histories.
- *credits* (WL2, credit verification), with lengths times {inputs_scale:g}: {credits} inputs of
  {low:,} to {high:,} tokens, evenly distributed, with nothing in common. The cache holds
  {credits_cache:,} tokens: the longest input, which an engine of today could not serve otherwise.

The paper has 50 posts for each of 20 users, and 60 inputs; fewer posts and shorter inputs save
time. *Load* is the rate of requests as a multiple of x, those per second that `srjf` serves when
all come at once: {posts_rate:.1f} of posts, {credits_rate:.2f} of inputs. As in the paper, *users*
arrive as a Poisson process, each with all requests, one after another: here one every {gap:.0f}
ms, which is 1 / x. The paper's code has 0.1 s, for devices that serve 6 to 12 such posts a second
each (by their peak speeds; see `bench/prefill_only/arrivals.py`). What other distances do is
[below](#arrivals), and what it would be like if the requests of all users were *shuffled* is in a
table of its own.

Each request weighs two labels of one token. Every policy serves the same requests at the same
times, with a cache of the same size that is empty at first:

- `chunked` is an engine of today: first in, first out, prompts in chunks that fill steps of
  {chunk} tokens ({inputs_chunk} for inputs; vLLM's default of 2,048 at this scale), all states of
  a prompt kept until its end. Where the beginning of a prompt is cached, the rest may fit a step,
  with others; then what the cache has no room for is dropped here, too.
- `fifo`, `srjf-static`, `srjf-calibrated`, `srjf`: a whole prompt in a step, in slices of as many
  tokens, so that both sides take the same memory for intermediate results. Of its states stay as
  many as the cache has room for, and no slice but the last computes more of the last layer than
  keys and values. `srjf-calibrated` is the paper's: a prompt a step. Under `srjf` a prompt joins
  the step of another where that pays.

λ is {aging:g} seconds of JCT for a second of waiting, here {tokens:,.0f} tokens per second (tried
[below](#aging)). The authors' code has 500 tokens per second.

Latencies are in seconds. Time in which nothing is to be done is not waited for: the clock is set
to the next arrival. All policies serve at once, each on an engine with a clock of its own: they
take turns, step by step, and whoever is behind goes on, so that the slow minutes of a machine that
others share fall on all alike. The highest load of posts by users is served in {rounds} rounds and
the lower ones in {lower_rounds}, each with arrivals drawn anew; averages are shown.
"""

DIFFERENT = """\
What differs from the paper: there is no second device, so that nothing is compared with networks
spread over two. All requests of a user are equally long, so that even the order of `srjf-static`
brings them together where they wait together.

How much an order gains on the posts depends on how many users are served side by side. As long as
their histories fit the cache, first in, first out finds them there, too, and what `srjf` gains is
the order alone. From where they do not, every request of `fifo` computes its history anew.

Where inputs have nothing in common, no order changes the throughput, and where the longest is one
and a half times the shortest, the shortest first gains little: of the mean, with all there at
once, 7 % where time goes with the length, 15 % where it goes with its square. *Clairvoyant* is the
least mean that any order could have: the request with the least left first, by the seconds that
each took under `srjf`, interrupting others at no cost. It foresees the machine's noise, which no
scheduler can, and lets inputs wait that λ does not (see below). `wl2_fifo_over_clairvoyant` is what
there is to be gained at all. The paper's gain on this workload is over engines of less throughput:
here, over `chunked`.
"""

SPACINGS = """\
### Arrivals

Means of `fifo` over those of `srjf` for the posts, simulated with the costs above, averages of
{draws} draws of arrivals. With requests further apart more users overlap, and their histories fit
the cache no more: 0.1 s is long for prompts as short as these.
"""

AGING = """\
### Aging

Both workloads under `srjf` at several λ, simulated with the costs above, in which a token takes as
long in any prompt (Fig. 11, drawn for the posts). For inputs with nothing in common, λ = 0 is the
shortest job first; *clairvoyant*: the least mean that any order could have.
"""

JCT = """\
Pearson's correlation of the seconds that a prompt takes alone with its tokens that are not cached
(*proxy*), and with a fit: linear in length and cached tokens, as in the paper, or with a term for
attention. The paper has {paper} for the proxy, of a 32 B network on an A100. How far attention
bends the line depends on the network's width beside the prompt's length: these prompts are timed on
`{model}`, in the proportions of Qwen2.5-32B. Of its operations on a prompt of 1,400 tokens
attention has a tenth, of those of Qwen2.5-32B on one of 14,000 an eighth. All states are kept; the
engine keeps those that have room.
"""

BATCHING = """\
### One prompt a step, or several

Prompts that begin with the same {cached:,} cached tokens: milliseconds of a step that takes one of
them, and the time for each of several in a step as a multiple of that. Below 1 it pays for them
together; but the first waits for the last. *Joined*: how many the policy lets share a step, by the
costs above, while {others} wait. The paper never batches (section 6.1).
"""

CROWDED = """\
Milliseconds of a step's scheduling while {waiting:,} prefill-only requests wait, all of one
relQuery, or a hundred of each; the first step takes in all that have come.
"""

FILTER = """\
A filter over movie reviews by two labels of so many tokens: scored in the step that ends the
prompt, decoded a token a step, or decoded with forced tokens skipped. The three take turns, step by
step. Of a row some 40 tokens are not cached, beside which two or three
decoded ones, many rows to a step, weigh little. For labels of one token, scoring computes the same
tokens in the same steps as decoding with forced tokens skipped.
"""
