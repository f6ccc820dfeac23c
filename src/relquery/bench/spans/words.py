"""What the document of `relquery bench spans` says beside its tables."""

from __future__ import annotations

SETTING = """\
{model}: random weights,
{parameters:.1f} M parameters (embeddings aside), and a tokenizer of {vocabulary:,} tokens trained
on the passages below. Both sides use the same engine with the same size of KV cache; *plain* is
what a user of a chat API sends, the same text as one prompt.
"""

RAG = """\
## Documents

Milliseconds from the call of `Connection.run` to an answer of one token, medians of rounds in which
the sides take turns, after one to warm up (paper 002, Fig. 13b): {repeats} rounds of the longest
prompts, more of shorter ones. Documents are {tokens} random tokens each. *Miss*: the documents are
spans (`plus`), none is cached. *Hit*: the same documents in another order and with another
question. Plain documents are never cached: they are drawn anew each round.
"""

NESTED = """\
## Nested generations

A judge reads the answers of several generations of {inner} tokens (Fig. 14 and 15). Milliseconds
from when all of these are known to the judge's first token, medians over executions. They are
generated once per execution, and their text is what the plain side sends; bytes that are no
character become one `?` each. *1%* is the 1st percentile of the ratios. In brackets: tokens of the
judge's prompt. On our side they hold what the inner generations read. As text, what a random model
says may be cut into other tokens than it was drawn in, often a few percent more.
"""

BULK = """\
## Bulks

Seconds to answer all queries, one token each, given at once (Table 4). The cache holds {share:.0%}
of the distinct passages. *Plain* sends passages as text in the order given; *spans* is the same
order with spans and nothing reused, so that only attention is sparser; *ours* is `run_bulk`, the
time to find an order included. *Bound* is all passages over distinct ones, and *reached* the
speedup over bound x plain / spans.
Every side has the memory of its whole cache before it is timed. The sides run one after another, so
that a noisy machine moves the last figures by some percent.
"""

MOVES = """\
## Relocation

Tokens of a span per millisecond that are made to serve at another position, in all layers
(Fig. 13a). The engine rotates the {queries} query tokens that see the span; rotating keys when they
are read costs the same again in each step; CIDRA rotates them in the cache once per new position.
"""

DECODE = """\
Decoding after {spans} spans of {tokens} tokens each: {ours:.1f} tokens/s; after the same tokens as
ordinary text: {plain:.1f}.
"""

NEEDLES = """\
## Attention locality

Share of cases in which the demo model lists all {needles} names, right and in order, that are
hidden one per text among so many other words (Fig. 17). *One judge* reads all texts; *tree* is the
same query under `for_="attention"`, two at a time.
"""
