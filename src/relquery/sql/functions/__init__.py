"""The functions that call a model: what each asks, and in which form it answers."""
