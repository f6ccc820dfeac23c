"""Forms of requests to providers' APIs and of their replies: no I/O, and the same for every use."""
