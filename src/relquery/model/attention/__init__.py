"""Attention over packed tokens and segmented contexts."""
