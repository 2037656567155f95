"""The doctor's part on a node: what is looked at, what is made of it, and what to do about it."""
