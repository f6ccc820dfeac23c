"""A stand-in for a provider: what it answers depends on the question and the row's text alone."""
