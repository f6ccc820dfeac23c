"""The parts of `scripts/bench retrieval`, each with a section in its document."""
