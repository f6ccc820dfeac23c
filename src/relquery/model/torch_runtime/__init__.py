"""Models that torch computes: on GPUs, and of families that the native runtime does not know."""
