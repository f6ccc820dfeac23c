"""How far a run is, shown in a terminal or a notebook while it runs, and nowhere else."""
