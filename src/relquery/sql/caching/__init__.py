"""Which prefixes a provider keeps for a stage, and in which order its prompts are sent for that."""
