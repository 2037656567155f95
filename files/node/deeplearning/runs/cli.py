"""`deeplearning run`."""

from __future__ import annotations

from importlib import import_module

# Started for each process and on each node, not by people. They import as little as possible.
INTERNAL = {
    "exec": "deeplearning.runs.wrapper",
    "survey": "deeplearning.runs.survey",
    "prove": "deeplearning.runs.gpu_proofs",
    "packages": "deeplearning.runs.packages",
}


def main(argv: list[str]) -> int:
    if argv and argv[0] in INTERNAL:
        return int(import_module(INTERNAL[argv[0]]).main(argv[1:]) or 0)
    return int(import_module("deeplearning.runs.commands").main(argv))
