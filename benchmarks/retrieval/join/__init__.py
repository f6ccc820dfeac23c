"""A join of two tables by a call, with pairs that are not near left out before."""
