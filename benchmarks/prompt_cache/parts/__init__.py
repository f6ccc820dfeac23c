"""The parts of `scripts/bench prompt-cache`."""
