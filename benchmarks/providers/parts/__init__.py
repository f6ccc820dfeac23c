"""The parts of `scripts/bench providers`."""
