"""Prompts of a schedule: built, marked for caching, written to batch files; and their answers."""
