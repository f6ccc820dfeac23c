"""The prompts of a schedule: rendered, marked, written as batch files, answers put back."""
