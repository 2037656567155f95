"""`deeplearning env`: print the line that activates a framework's environment."""

from __future__ import annotations

import argparse
from pathlib import Path

from deeplearning.config import read_config
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="deeplearning env",
        description='Prints the line that activates a framework. Example: eval "$(deeplearning env pytorch)"',
    )
    parser.add_argument("framework", nargs="?", help="default: the cluster's default framework")
    framework = parser.parse_args(argv).framework or read_config().default_framework
    if not framework:
        raise UserError("this cluster has no default framework: name one. Example: deeplearning env tensorflow")
    print(activation(framework))


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
    # A name that begins with a dot is about to be removed.
    return sorted(marker.parent.name for marker in Path(paths.ENVIRONMENTS).glob(f"[!.]*/{paths.MARKER}"))
