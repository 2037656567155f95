"""`deeplearning env`: print the line that activates a framework's environment."""

from __future__ import annotations

import argparse
import os

from deeplearning.config import read_config
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError


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
        raise UserError("this cluster has no default framework: name one. Example: deeplearning env tensorflow")
    return framework


def activation(framework: str) -> str:
    frameworks = installed()
    if framework not in frameworks:
        raise UserError(
            f"{framework} is not installed on this node: give one of {', '.join(frameworks) or 'none'}, or install it. "
            f"Example: ansible-playbook deeplearning.aws.train -e framework={framework}"
        )
    return f". {paths.ENVIRONMENTS}/{framework}/bin/activate"


def installed() -> list[str]:
    """Return the frameworks whose installation is complete. The marker is written last."""
    try:
        names = sorted(os.listdir(paths.ENVIRONMENTS))
    except FileNotFoundError:
        return []
    complete = [name for name in names if os.path.exists(f"{paths.ENVIRONMENTS}/{name}/{paths.MARKER}")]
    # A name that begins with a dot is about to be removed.
    return [name for name in complete if not name.startswith(".")]
