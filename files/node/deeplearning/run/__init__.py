"""Training runs, from the request to the result: README.md beside this file has the formats."""
