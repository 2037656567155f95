"""Pin everything that the role framework installs, with checksums: tools/framework_pins.py [FRAMEWORK…]

Needs `uv` and the package index. Nodes replace environments that were created from other pins.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "files/node"))

from deeplearning.contract.frameworks import RECORDS  # noqa: E402

HEADER = "# Made by tools/framework_pins.py from {name}. It is complete: dependencies are not resolved.\n"
UNREACHABLE = (
    "# {index} could not be reached when this file was made: the checksums of {pin}\n"
    "# are those of the former file. {name} documents their origin.\n"
)

CUDA = ("nvidia-", "cuda-", "triton")
"""Packages that the pins for machines without GPUs leave out, although PyTorch on PyPI requires them."""

SHA256 = re.compile(r"[0-9a-f]{64}")


def compile_pins(requirements: str) -> list[str]:
    """Return a pin for each required package, with its checksums on lines of their own."""
    process = subprocess.run(
        ["uv", "pip", "compile", "-q", "--universal", "--python-version", "3.10", "--no-header", "--no-annotate"]
        + ["--generate-hashes", "-"],
        input=requirements,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise SystemExit(process.stderr.strip())
    return split_pins(process.stdout)


def split_pins(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return re.split(r"(?<!\\)\n", "\n".join(lines))


def checksums(index: str, package: str, version: str) -> list[str]:
    """Return the checksums that a package index publishes for the Linux wheels of a version."""
    with urllib.request.urlopen(f"{index}/{package}/", timeout=60) as response:
        page = response.read().decode()
    name = re.escape(f"{package}-{version}".replace("+", "%2B"))
    return sorted(set(re.findall(rf'/{name}-cp3\d+-cp3\d+-\w*linux\w*\.whl#sha256=({SHA256.pattern})"', page)))


def pin_from(index: str, package: str, version: str, target: Path) -> tuple[str, str]:
    """Return the pin of a package that has its own index, and a comment if that index cannot be reached."""
    pin = f"{package}=={version}"
    comment = ""
    try:
        sums = checksums(index, package, version)
    except (urllib.error.URLError, TimeoutError):
        before = [line for line in split_pins(target.read_text(encoding="utf-8")) if line.startswith(f"{pin} ")]
        sums = [checksum for line in before for checksum in SHA256.findall(line)]
        comment = UNREACHABLE.format(index=index, pin=pin, name=target.with_suffix(".in").name)
    if not sums:
        raise SystemExit(f"{index} has no wheel of {pin}, or cannot be reached, and {target} has no checksums of it.")
    return " \\\n".join([pin, *(f"    --hash=sha256:{checksum}" for checksum in sums)]), comment


def pinned(source: Path, indexes: Mapping[str, str]) -> str:
    """Return the pins file for a file of requirements. `indexes` are the packages that have their own index."""
    text = source.read_text(encoding="utf-8")
    # PyTorch's packages for machines without GPUs need the same as the others, except CUDA.
    pins = [pin for pin in compile_pins(text.replace("+cpu", "")) if "win32" not in pin.partition("\\")[0]]
    header = HEADER.format(name=source.name)
    if source.stem.endswith("-cpu"):
        # tf_keras requires `tensorflow`, which must not be installed in addition to `tensorflow-cpu`.
        pins = [pin for pin in pins if not pin.startswith((*CUDA, "tensorflow=="))]
    for package, index in indexes.items():
        version = re.search(rf"^{package}==(\S+)", text, re.MULTILINE)
        if not version:
            raise SystemExit(
                f"{source} has no {package}, for which its record has an index: add it, or remove the index."
            )
        pin, comment = pin_from(index, package, version[1], source.with_suffix(".txt"))
        pins = [pin if other.startswith(f"{package}==") else other for other in pins]
        header += comment
    return header + "\n".join(pins) + "\n"


def main(frameworks: Sequence[str]) -> None:
    for source in sorted(ROOT.glob("roles/framework/files/*/requirements-*.in")):
        if not frameworks or source.parent.name in frameworks:
            indexes = RECORDS[source.parent.name].index.get(source.stem.removeprefix("requirements-"), {})
            source.with_suffix(".txt").write_text(pinned(source, indexes), encoding="utf-8")
            print(source.with_suffix(".txt").relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
