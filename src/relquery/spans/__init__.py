"""Execution of span queries (paper 002): inner generations first; outer ones reuse their states.

Nothing here depends on a model: prompts go to any `backends.base.Backend`.
"""
