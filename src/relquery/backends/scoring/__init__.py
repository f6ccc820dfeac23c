"""Probabilities of labels: what scoring gives, and how it is corrected."""
