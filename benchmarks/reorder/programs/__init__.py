"""Programs that run in an environment of their own."""
