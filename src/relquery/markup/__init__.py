"""Prompt markup: schemas of prompt modules, and the prompts that import them (paper 001).

`read` makes trees of texts; the modules here give them tokens and positions, and ask.
"""
