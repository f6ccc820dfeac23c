"""`scripts/bench accuracy`: how often small models are right."""
