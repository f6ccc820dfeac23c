"""From tokens to logits: a network's own forward pass, or ours for those that we know."""
