"""What the document of `scripts/bench reorder` says beside its tables."""

from __future__ import annotations

HIT_RATES = """\
## Hit rates

Each cell is written `column: value` (in a bag `passage: value`), and the cells of a row are joined
in the order sent. A row hits the longest prefix, in characters, that it has in common with any row
sent before it; the hit rate is the sum of hits over the sum of lengths. It is counted here on the
text itself, apart from the product's own measure (`hit_rate_distance` compares them). In brackets:
seconds to solve, after compilation and encoding, median of three runs; the figures above are for
the whole call. Squad's contexts are a bag for every method, and every method is told the
dependencies of beer and movies. *Best public* is the best public solver, as the project's goals
cite it. All columns but that one have `weight="tokens"`, in characters; *ggr* forms its groups by
squared characters, and so has its threshold of 100,000 in them, as the paper has it.
"""

OPTIMUM = """\
## Distance to the optimum

Prefix hit count (PHC) on the first rows of each table, as in Table 6 (appendix D) of *Optimizing
LLM Queries in Relational Data Analytics Workloads*. `ophr` is the exact optimum; the others are in
percent of it; in brackets, seconds to solve. *ggr, no stopping* is without depths and threshold.
All columns have `weight="squared"`. Of pdmx these are ten columns, as many as the paper takes,
which does not name them.
"""

HUNDRED = """\
On the first 100 rows, by default and in characters that are hit, beginnings included. *Best found*
is the best of `tree` with 10 seconds and of the exact search, which gives up after some seconds;
where it proves the optimum, that. No order hits more than *bound*, which dual ascent gives. *Tree*
is in percent of the best found.
"""

GROWTH = """\
## Growth

A synthetic table of 10 columns: Zipf-distributed values of 3 to 10,000 kinds, a customer per 10
rows, one column of distinct values; some columns follow from others. Seconds of
`reorder(table, weight="tokens")` with its defaults, without encoding. How long `tree` searches by
default grows with the table and then stays at a few seconds, which alone would bend the curve down;
so the same call with no time to search is measured as well, and `growth_exponent` and
`growth_last_step` take the worse of both. The first is b of the best fit
seconds = a (n log n)^b, which a constant cost at small sizes lowers; the second, which it does not,
is the growth from the last size but one to the last over that of n log n. The picture's dashed line
is n log n through the first point.
"""

ESTIMATES = """\
## Costs, estimated from hit rates

What `tree` saves over the original order if prefixes of any length were cached, from the hit rates
above, as in the paper's Table 4. A hit costs what reading costs, a miss what writing costs. (The
paper's Anthropic column comes out only if a miss is charged twice, to be sent and to be written; by
its own prices, and here, a miss is charged once.) *Of* is the date of the price; its source is in
`prices.toml`. gpt-4o-mini and claude-3.5-sonnet are the paper's.
"""

BILLS = """\
## Costs, billed on tokens

Input tokens of the first {rows:,} rows, each value {times} times over, as the paper does for its
Table 3 to get above the shortest prefix that is cached; it takes FEVER, which is not among the
tables here. {tokens}:
the request, then a line per field. The provider's minimum, steps and breakpoints count; requests
come one at a time, and no entry expires. Breakpoints are set where they pay most, where the paper
marks the first 1,024 tokens of each request. In brackets: tokens read from the cache. *Tree by
price* is `reorder(..., weight=<price>)`, *tree by tokens* has `weight="tokens"`, and *saved* is
what *tree by price* saves over the original order.
"""

REAL_TOKENS = "Tokens are those of Llama 3 for whole prompts"
PIECES = "Without Llama 3's tokenizer, pieces of words stand in for tokens"
