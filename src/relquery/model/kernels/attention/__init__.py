"""Attention over keys and values where they lie in the cache, with a streaming softmax.

A task is a set of tokens; its visits are parts of the cache that some of them see. For each task
and head, a thread keeps maxima, sums and outputs of the tokens' rows while it goes through the
visits in blocks of keys (FlashAttention, Dao et al. 2022). Many rows meet a block as a matrix
product, few rows as dot products with keys in place. Nothing is gathered or padded in memory.
"""
