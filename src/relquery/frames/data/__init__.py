"""What a frame reads, and the form in which it gives its rows back."""
