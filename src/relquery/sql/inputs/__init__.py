"""Prompts made of rows: what a call sends for each distinct input, built when it is read."""
