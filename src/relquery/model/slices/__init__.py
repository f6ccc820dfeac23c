"""Saving memory in a step: tokens are cut into slices, and unneeded tensors are released."""
