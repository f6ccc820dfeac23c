"""How the prompts of a call are sent so that a provider's cache makes them cheapest."""
