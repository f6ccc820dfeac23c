"""The blocks of the KV cache: which requests hold them, and how they change position."""
