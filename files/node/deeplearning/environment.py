"""`deeplearning env`: the line that activates a framework's environment."""

from __future__ import annotations

import argparse
import os

from deeplearning import Refusal, paths
from deeplearning.config import read_config


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="deeplearning env",
        description='Prints the line that activates a framework. Example: eval "$(deeplearning env pytorch)"',
    )
    parser.add_argument("framework", nargs="?", help="default: the cluster's default framework")
    print(activation(parser.parse_args(argv).framework or default_framework()))
    return 0


def default_framework() -> str:
    framework = read_config().default_framework
    if not framework:
        raise Refusal("this cluster has no default framework: name one. Example: deeplearning env tensorflow")
    return framework


def activation(framework: str) -> str:
    there = installed()
    if framework not in there:
        raise Refusal(f"{framework} is not installed on this node. There is: {', '.join(there) or 'none'}.")
    return f". {paths.ENVIRONMENTS}/{framework}/bin/activate"


def installed() -> list[str]:
    """Those that were installed to the end: the marker is written last."""
    try:
        names = sorted(os.listdir(paths.ENVIRONMENTS))
    except FileNotFoundError:
        return []
    whole = [name for name in names if os.path.exists(f"{paths.ENVIRONMENTS}/{name}/.deeplearning.json")]
    # What begins with a dot is on its way out.
    return [name for name in whole if not name.startswith(".")]
