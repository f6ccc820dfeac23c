"""Prompts as token ids, by the chat template of a model."""
