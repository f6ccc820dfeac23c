"""Kernels of relquery.native: their arguments, and the threads that they run on."""
