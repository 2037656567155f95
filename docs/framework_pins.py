"""Pin everything that the framework roles install, with checksums: docs/framework_pins.py [ROLE…]

Needs `uv` and the package index. Environments that were made from other pins are made anew.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = (
    "# Made by docs/framework_pins.py from {name}. It is complete: what these ask for themselves is not looked at.\n"
)
UNREACHABLE = (
    "# {index} could not be reached when this file was made: the checksums of {pin}\n"
    "# are those that the file had before. {name} says where they come from.\n"
)

CUDA = ("nvidia-", "cuda-", "triton")
"""What builds for processors leave out, although PyTorch's from the usual index asks for them."""

SHA256 = re.compile(r"[0-9a-f]{64}")


def compile_pins(requirements: str) -> list[str]:
    """Return a pin for each package that these need, with its checksums on lines of their own."""
    made = subprocess.run(
        ["uv", "pip", "compile", "-q", "--universal", "--python-version", "3.10", "--no-header", "--no-annotate"]
        + ["--generate-hashes", "-"],
        input=requirements,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise SystemExit(made.stderr.strip())
    return split_pins(made.stdout)


def split_pins(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return re.split(r"(?<!\\)\n", "\n".join(lines))


def checksums(index: str, package: str, version: str) -> list[str]:
    """Return the checksums that a package index publishes for the Linux wheels of a version."""
    with urllib.request.urlopen(f"{index}/{package}/", timeout=60) as answer:
        page = answer.read().decode()
    name = re.escape(f"{package}-{version}".replace("+", "%2B"))
    return sorted(set(re.findall(rf'/{name}-cp3\d+-cp3\d+-\w*linux\w*\.whl#sha256=({SHA256.pattern})"', page)))


def pin_from(index: str, package: str, version: str, target: Path) -> tuple[str, str]:
    """Return the pin of a package that has an index of its own, and a comment if that index cannot be reached."""
    pin = f"{package}=={version}"
    comment = ""
    try:
        sums = checksums(index, package, version)
    except (urllib.error.URLError, TimeoutError):
        before = [line for line in split_pins(target.read_text(encoding="utf-8")) if line.startswith(f"{pin} ")]
        sums = [found for line in before for found in SHA256.findall(line)]
        comment = UNREACHABLE.format(index=index, pin=pin, name=target.with_suffix(".in").name)
    if not sums:
        raise SystemExit(f"{index} has no wheel of {pin}, or cannot be reached, and {target} has no checksums of it.")
    return " \\\n".join([pin, *(f"    --hash=sha256:{found}" for found in sums)]), comment


def pinned(source: Path, indexes: Mapping[str, str]) -> str:
    """Return the text of the pins file for a file that names packages; `indexes` are those with one of their own."""
    text = source.read_text(encoding="utf-8")
    # PyTorch's builds for processors need the same as the others, but for CUDA.
    pins = [pin for pin in compile_pins(text.replace("+cpu", "")) if "win32" not in pin.partition("\\")[0]]
    header = HEADER.format(name=source.name)
    if source.stem.endswith("-cpu"):
        # tf_keras asks for `tensorflow`, and would get it beside `tensorflow-cpu`.
        pins = [pin for pin in pins if not pin.startswith((*CUDA, "tensorflow=="))]
    for package, index in indexes.items():
        version = re.search(rf"^{package}==(\S+)", text, re.MULTILINE)
        if not version:
            raise SystemExit(f"{source} has no {package}, which environment.json has an index for.")
        pin, comment = pin_from(index, package, version[1], source.with_suffix(".txt"))
        pins = [pin if other.startswith(f"{package}==") else other for other in pins]
        header += comment
    return header + "\n".join(pins) + "\n"


def main(roles: Sequence[str]) -> None:
    for source in sorted(ROOT.glob("roles/*/files/requirements-*.in")):
        if not roles or source.parent.parent.name in roles:
            needs = json.loads((source.parent / "environment.json").read_text(encoding="utf-8"))
            indexes = needs.get("index", {}).get(source.stem.removeprefix("requirements-"), {})
            source.with_suffix(".txt").write_text(pinned(source, indexes), encoding="utf-8")
            print(source.with_suffix(".txt").relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
