"""What prompts were expected to read from a provider's cache, and why some did not."""
