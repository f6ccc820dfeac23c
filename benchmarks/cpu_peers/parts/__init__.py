"""The parts of the benchmark, each with a section of its own."""
