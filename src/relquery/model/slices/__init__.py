"""Memory of one step kept low: tokens in slices, and what a slice no longer needs let go."""
