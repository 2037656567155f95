"""One module per service: each has ROWS, its part of the table."""
