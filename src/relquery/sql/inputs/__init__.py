"""From rows to prompts: what a call sends for each distinct input, built when it is read."""
