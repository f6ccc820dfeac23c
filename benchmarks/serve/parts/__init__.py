"""The parts of `scripts/bench serve`."""
