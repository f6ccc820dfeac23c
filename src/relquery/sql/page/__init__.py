"""A page about a run: one HTML file that needs nothing else."""
