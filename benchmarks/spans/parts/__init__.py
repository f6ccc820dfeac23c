"""The parts of `relquery bench spans`, each with a section in its document."""
