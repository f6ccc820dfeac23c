"""Prompts as batches, which a provider answers within a day at half the price."""
