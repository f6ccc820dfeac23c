"""`tree`: several searches of a limited time, and the best that any of them finds."""
