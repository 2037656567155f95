"""What all parts share; it imports none of them."""
