"""Configure this machine by the unpacked bundle, or turn it into the source of an image."""

from __future__ import annotations

from deeplearning.boot.baking import bake
from deeplearning.boot.configuring import configure
from deeplearning.boot.machine import OwnMachine


def start(machine: OwnMachine, folder: str) -> int:
    return (bake if "frameworks" in machine.parameters else configure)(machine, folder)
