"""Queries over tables that outgrow one machine: planned here, run by Spark."""
