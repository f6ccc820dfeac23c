"""The forms of other APIs, as their clients send and read them."""
