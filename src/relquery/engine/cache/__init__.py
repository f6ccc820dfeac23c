"""The blocks of the KV cache: who holds them, and how they move to other positions."""
