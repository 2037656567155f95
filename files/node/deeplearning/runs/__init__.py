"""Training runs, from the request to the result. README.md in this folder describes the formats."""
