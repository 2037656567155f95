"""What the API answers: a front that knows callers and rules, and one extension module for each service."""
