"""The engine beside vLLM on the same CPU, and beside what the machine can do."""
