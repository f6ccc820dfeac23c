"""Personal data in texts, found by rules and replaced by placeholders, without a model."""
