"""The parts of `scripts/bench spans`, each with a section in its document."""
