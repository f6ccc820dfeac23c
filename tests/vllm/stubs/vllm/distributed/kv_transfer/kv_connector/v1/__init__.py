"""Stands in for a package of vLLM."""
