"""`scripts/bench peers`: relquery beside LOTUS and Daft, over the same stand-in for a provider."""
