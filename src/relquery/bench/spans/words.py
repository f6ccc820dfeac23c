"""What the document of `relquery bench spans` says beside its tables."""

from __future__ import annotations

INTRODUCTION = """\
What span queries gain over the same text as ordinary prompts (paper 002). Both sides use the same
engine with the same size of KV cache; *plain* is what a user of a chat API sends, the same text as
one prompt. Each section says when and how it was measured.
"""

SETTING = """\
{model}: random weights, {parameters:.1f} M parameters (embeddings aside), and a tokenizer of
{vocabulary:,} tokens trained on the passages of the bulks.
"""

RAG = """\
Milliseconds from the call of `Connection.run` to an answer of one token, medians of rounds in which
the sides take turns, after one to warm up (paper 002, Fig. 13b): {repeats} rounds of the longest
prompts, more of shorter ones. Documents are {tokens} random tokens each. *Miss*: the documents are
spans (`plus`), none is cached. *Hit*: the same documents in another order and with another
question. Plain documents are never cached: they are drawn anew each round.
"""

NESTED = """\
A judge reads the answers of several generations of {inner} tokens (Fig. 14 and 15). Milliseconds
from when all of these are known to the judge's first token, medians over executions. They are
generated once per execution, and their text is what the plain side sends; bytes that are no
character become one `?` each. *1%* is the 1st percentile of the ratios. In brackets: tokens of the
judge's prompt. On our side they hold what the inner generations read. As text, what a random model
says may be cut into other tokens than it was drawn in, often a few percent more.
"""

BULK = """\
Seconds to answer all queries, one token each, given at once (Table 4). The cache holds {share:.0%}
of the distinct passages. *Plain* sends passages as text in the order given; *ordered* sends them
as text, queries and the passages in each in the order of `reorder(bags=...)`, its time included.
*No reuse* is spans in the order given with nothing cached, so that only attention is sparser;
*as given* is the same with a cache. *Ours* is `run_bulk`, the time to find an order included.

*Bound* is the tokens of all passages over those of the distinct ones, what an unlimited cache
would save; *reached* is the speedup of ours over plain, divided by bound x plain / no reuse. The
last columns are the tokens of passages that came from the cache.

Every side has the memory of its whole cache before it is timed, and a clock of its own. *No reuse*
and *ours* take turns, step by step, so that the slow minutes of a machine that others share fall on
both alike; so do *plain* and *ordered*. More caches at once would not fit this memory: what is
compared across pairs moves by some percent with the machine.
"""

MOVES = """\
Tokens of a span per millisecond that are made to serve at another position, in all layers
(Fig. 13a). The engine rotates the {queries} query tokens that see the span; rotating keys when they
are read costs the same again in each step; CIDRA rotates them in the cache once per new position.
"""

DECODE = """\
Decoding after {spans} spans of {tokens} tokens each: {ours:.1f} tokens/s; after the same tokens as
ordinary text: {plain:.1f}.
"""

NEEDLES = """\
Share of cases in which the demo model lists all {needles} names that are hidden one per text among
so many other words (Fig. 17): each once, and no other. Their order does not count, for the texts
are a bag, which may be asked in any order. *One judge* reads all texts; *tree* is the same query
under `for_="attention"`, two at a time, whose answers are other answers to other
questions.

The demo model was trained on this very task, in this wording: lessons of up to eight names and up
to about 150 words of hay in all, 16 to 19 around each of eight names. Beyond that one judge reads
more than it has learned to read, while each judge of the tree stays within. So the rows show what a
reduction gains where a model's range ends; they do not show where the range of others does.

*Given* candidates are texts in the query. *Generated* ones are answers of inner generations, as in
the paper: each is generated token by token, bound to one of {drawn} texts of which the model draws
at temperature 1; what counts are the names in those that were drawn.
"""
