"""The requests that a step takes: what a policy sees, what it plans, and the policies."""
