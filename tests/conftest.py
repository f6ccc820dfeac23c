"""Hypothesis tries the same examples in every run; `--hypothesis-profile=explore` tries others."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("explore", derandomize=False, print_blob=True)
settings.load_profile("same")
