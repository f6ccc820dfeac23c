"""Walks a statement through its stages: in which order, and for which rows, its calls are asked."""
