"""The parts of `scripts/bench queries`, each with a section in its document."""
