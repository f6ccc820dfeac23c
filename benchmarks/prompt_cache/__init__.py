"""`scripts/bench prompt-cache`: modules of prompts (paper 001)."""
