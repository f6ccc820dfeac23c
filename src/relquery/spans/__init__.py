"""Execution of span queries (paper 002): inner generations first, their states reused by the outer.

Nothing here knows a model: prompts go to any `backends.base.Backend`.
"""
