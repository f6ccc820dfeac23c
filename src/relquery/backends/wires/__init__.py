"""What is written to a provider's API and read from it: no I/O, and the same for every use."""
