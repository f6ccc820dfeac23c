"""What steps and prompts cost, as models fitted to measurements."""
