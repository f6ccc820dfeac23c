"""Attention of a packed batch on tensors."""
