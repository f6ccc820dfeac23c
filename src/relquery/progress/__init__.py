"""The progress of a run, shown in a terminal or a notebook while it runs, and nowhere else."""
