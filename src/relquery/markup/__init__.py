"""Prompt markup: schemas of prompt modules, and the prompts that import them (paper 001, §3.2)."""
