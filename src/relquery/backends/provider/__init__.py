"""Providers' APIs, and servers of their form, as backends."""
