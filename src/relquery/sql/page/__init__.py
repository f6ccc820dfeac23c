"""A page about a run, in one file of HTML that needs nothing else."""
