"""Files and batches: what is stored, and its routes."""
