"""The APIs of providers, each over its official SDK."""
