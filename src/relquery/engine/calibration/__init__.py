"""Measuring what steps and prompts cost on this machine."""
