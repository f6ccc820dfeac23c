"""Embedders by name: search by words, an encoder on this machine, or an endpoint of a provider."""
