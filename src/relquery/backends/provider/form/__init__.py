"""What is sent to a provider and read from it, whatever its API: no I/O."""
