"""The forms of requests and replies, one module each."""
