"""Encoders: networks that turn a text into one vector."""
