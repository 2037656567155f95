"""What every node of a cluster runs: members, runs, health. It needs nothing but the system's own Python."""

from __future__ import annotations


class Refusal(Exception):
    """What people read, as one sentence: what is wrong, what was given, what to do."""
