"""A request on its way: its tokens, its labels, and the relQuery it belongs to."""
