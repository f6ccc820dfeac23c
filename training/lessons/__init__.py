"""Lessons from rows: prompts with the expected answers, and how well they are answered."""
