"""Groups that do not fit in a prompt."""
