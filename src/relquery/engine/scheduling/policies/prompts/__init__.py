"""Policies that order single prompts (paper 004), and the queue they keep."""
