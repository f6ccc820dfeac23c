"""Finds personal data in texts by rules, and puts placeholders in its place, without a model."""
