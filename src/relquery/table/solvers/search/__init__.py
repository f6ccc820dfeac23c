"""`tree`: runs several searches with a time limit and takes the best result."""
