"""Adapters for networks that do not take an attention function."""
