"""Hybrid prefilling on tensors: slices of a step that take turns."""
