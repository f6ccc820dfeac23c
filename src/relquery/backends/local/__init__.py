"""The engine on this machine as a backend."""
