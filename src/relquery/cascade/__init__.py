"""A cheap model answers the clear rows and a strong one the rest, with a guarantee that holds."""
