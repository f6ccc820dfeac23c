"""`relquery span`."""
