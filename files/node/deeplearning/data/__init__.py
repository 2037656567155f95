"""Data sets on the nodes: staged whole or not at all, and resumed after an interruption."""
