"""LOTUS's prompts, as far as programs import them."""
