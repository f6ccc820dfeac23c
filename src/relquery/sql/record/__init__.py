"""What was sent in a run, prompt by prompt, if that is asked for."""
