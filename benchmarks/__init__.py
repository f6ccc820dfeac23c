"""Benchmarks: `scripts/bench NAME`. Each measures both sides of a ratio in one run."""
