"""Servers of the OpenAI chat-completions form as backends."""
