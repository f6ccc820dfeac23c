"""The commands about ledgers: what is in one, and going on with a run that was stopped."""
