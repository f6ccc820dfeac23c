"""`scripts/bench sembench`: SemBench's Movie scenario, in tokens, calls and dollars."""
