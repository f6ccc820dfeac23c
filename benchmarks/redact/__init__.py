"""How much of the personal data in sentences the rules find."""
