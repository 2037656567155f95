"""Pins all that the framework roles install, from what they name themselves: docs/framework_pins.py [ROLE…]

Needs `uv` and the package index. Afterwards environments that were made before are made anew.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = (
    "# Made by docs/framework_pins.py from {name}. It is complete: what these ask for themselves is not looked at.\n"
)

CUDA = ("nvidia-", "cuda-", "triton")
"""What builds for processors leave out, although PyTorch's from the usual index asks for them."""


def pinned(source: Path) -> str:
    # PyTorch's builds for processors stand in an index of their own, and need the same as the others, but for CUDA.
    wanted = source.read_text(encoding="utf-8").replace("+cpu", "")
    made = subprocess.run(
        ["uv", "pip", "compile", "-q", "--universal", "--python-version", "3.10", "--no-header", "--no-annotate", "-"],
        input=wanted,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise SystemExit(f"{source}: {made.stderr.strip()}")
    lines = [line for line in made.stdout.splitlines() if "win32" not in line]
    if source.stem.endswith("-cpu"):
        # tf_keras asks for `tensorflow`, and would get it beside `tensorflow-cpu`.
        lines = [line for line in lines if not line.startswith((*CUDA, "tensorflow=="))]
        lines = [f"{line}+cpu" if line.startswith("torch==") else line for line in lines]
    return HEADER.format(name=source.name) + "\n".join(lines) + "\n"


def main(roles: list[str]) -> None:
    for source in sorted(ROOT.glob("roles/*/files/requirements-*.in")):
        if not roles or source.parent.parent.name in roles:
            source.with_suffix(".txt").write_text(pinned(source), encoding="utf-8")
            print(source.with_suffix(".txt").relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
