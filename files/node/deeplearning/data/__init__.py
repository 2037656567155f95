"""Data sets on the nodes: staged once, whole or not at all, and gone on with after an interruption."""
