"""What the document of `relquery bench prefill-only` says beside its tables."""

from __future__ import annotations

SETTING = """\
What paper 004 (PrefillOnly) measures, on this machine: how long an input may be, how long requests
wait that need no decode, and what a SQL filter takes whose labels are scored.

The traffic runs on `{model}`, {parameters:.1f} M parameters:
{fixed:.1f} ms for a step and {slope:.3f} ms for each token of short prompts, which is {speed:,.0f}
tokens per second. It is wide for its depth, so that attention does not outweigh all else as it
would in a narrow one.
"""

LENGTHS = """\
## Longest input

By what is kept and what is cut, in the same memory (Fig. 10, Table 2):
"""

TRAFFIC = """\
## Latency over load

The workloads of Table 1, of random token ids:

- *posts* (WL1, post recommendation), with lengths times {scale:g}: {posts:,} requests of {users}
  users, in random order. A user's history has {history:,} tokens on average (normal, drawn again
  where it leaves the paper's bounds), a post {post}. The cache holds {posts_cache:,} tokens: a
  quarter of the histories.
- *credits* (WL2, credit verification), with lengths times {inputs_scale:g}: {credits} inputs of
  {low:,} to {high:,} tokens, evenly distributed, with nothing in common. The cache holds
  {credits_cache:,} tokens: the longest input, which an engine of today could not serve otherwise.

The paper has 20 users with 50 posts each, and 60 inputs; fewer posts and shorter inputs save time.
Arrivals are a Poisson process. *Load* is their rate as a multiple of x, the requests per second
that `srjf` serves when all come at once: {posts_rate:.1f} of posts, {credits_rate:.2f} of inputs.
Each request weighs two labels of one token. Every policy serves the same requests at the same
times, with a cache of the same size that is empty at first:

- `chunked` is an engine of today: first in, first out, prompts in chunks that fill steps of
  {chunk} tokens ({inputs_chunk} for inputs; vLLM's default of 2,048 at this scale), all states of a
  prompt kept until its end.
  Where the beginning of a prompt is cached, the rest may fit a step, with others; then what the
  cache has no room for is dropped here, too.
- `fifo`, `srjf-static`, `srjf`: a whole prompt in a step, in slices of as many tokens, so that both
  sides take the same memory for intermediate results. Of its states stay as many as the cache has
  room for, and no slice but the last computes more of the last layer than keys and values. Under
  `srjf` a prompt joins the step of another where that pays.

λ is {aging:g} seconds of JCT for a second of waiting, here {tokens:,.0f} tokens per second: of the
values tried below, one under which both workloads do well. The authors' code has 500 tokens per
second.

Latencies are in seconds. Time in which nothing is to be done is not waited for: the clock is set
to the next arrival. All policies serve at once, each on an engine with a clock of its own: they
take turns, step by step, and whoever is behind goes on, so that the slow minutes of a machine that
others share fall on all alike. The highest load is served in {rounds} rounds (posts) and in
{inputs_rounds} (inputs), and averages are shown; the lower loads are served once, and without
`srjf-static`.
"""

DIFFERENT = """\
What differs from the paper: there is no second device, so that nothing is compared with networks
spread over two. Requests of all users are mixed, so that first in, first out finds few histories in
the cache, and is overloaded at any of these loads. All requests of a user are equally long, so
that even the order of `srjf-static` brings them together where they wait together.

Where inputs have nothing in common, no order changes the throughput, and where the longest is one
and a half times the shortest, the shortest first gains little: of the mean, with all there at once,
7 % where time goes with the length, 15 % where it goes with its square. The paper's gain on this
workload is over engines of less throughput: here, over `chunked`.
"""

AGING = """\
## λ

Both workloads under `srjf`, simulated with the costs above, in which a token takes as long in any
prompt (Fig. 11, drawn for the {workload}). For inputs with nothing in common, λ = 0 is the shortest
job first: no order that does not interrupt a prompt has a better mean when all are there.
"""

JCT = """\
## What tells the time of a prompt

Pearson's correlation of the seconds that a prompt takes alone with its tokens that are not cached
(*proxy*), and with a fit: linear in length and cached tokens, as in the paper, or with a term for
attention. The paper has {paper} for the proxy, of a 32 B network on an A100. How far attention
bends the line depends on the network's width beside the prompt's length: these prompts are timed on
`{model}`, in the proportions of Qwen2.5-32B. Of its operations on a prompt of 1,400 tokens
attention has a tenth, of those of Qwen2.5-32B on one of 14,000 an eighth. All states are kept; the
engine keeps those that have room.
"""

BATCHING = """\
## One prompt a step, or several

Prompts that begin with the same {cached:,} cached tokens: milliseconds of a step that takes one of
them, and the time for each of several in a step as a multiple of that. Below 1 it pays for them
together; but the first waits for the last. *Joined*: how many the policy lets share a step, by the
costs above, while {others} wait. The paper never batches (section 6.1).
"""

CROWDED = """\
## A long queue

Milliseconds of a step's scheduling while {waiting:,} prefill-only requests wait, all of one
relQuery, or a hundred of each; the first step takes in all that have come.
"""

FILTER = """\
## A SQL filter

A filter over movie reviews by two labels of so many tokens: scored in the step that ends the
prompt, decoded a token a step, or decoded with forced tokens skipped. The three take turns, step by
step, as the policies above. Of a row some 40 tokens are not cached, beside which two or three
decoded ones, many rows to a step, weigh little. For labels of one token, scoring computes the same
tokens in the same steps as decoding with forced tokens skipped.
"""
