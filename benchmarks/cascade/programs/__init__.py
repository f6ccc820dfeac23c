"""Programs that run in environments of other systems."""
