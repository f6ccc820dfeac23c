"""When requests are sent: how many at once, within which limits and budget, and how often."""
