"""Read from the pinned packages for which GPUs they have kernels: tools/framework_kernels.py [FRAMEWORK…]

Downloads each framework's library and the libraries of CUDA that it computes with, one package at a time (8 GB in all),
compares each with its pinned checksums, and writes roles/framework/files/<framework>/gpu.json. Run it after
tools/framework_pins.py.

A library has its kernels in archives ("fatbins"): an entry each for machine code of one compute capability, and for
PTX, which the driver translates for newer ones. NVIDIA's cuobjdump lists the same for libmxnet.so, libtensorflow_cc.so
and libtorch_cuda.so, but its version 13.5 stops at the first entry of cuDNN 8.
"""

from __future__ import annotations

import datetime
import json
import mmap
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "files/node"))

from deeplearning.contract.frameworks import CUDNN_8, RECORDS  # noqa: E402
from deeplearning.contract.gpu_proof import LEAST_DRIVERS  # noqa: E402

FILES = ROOT / "roles/framework/files"

MACHINES = {"x86_64": "x86_64", "arm64": "aarch64"}
"""EC2's names of architectures, and those in the names of wheels."""
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux2010", "manylinux1")

MAGIC = struct.pack("<I", 0xBA55ED50)
ARCHIVE = struct.Struct("<IHHQ")
"""Magic, version, size of this header, size of all entries."""
ENTRY = struct.Struct("<HHIQIIHHI")
"""Kind, unknown, size of this header, size of the content; then the 9th: the compute capability as one number."""
PTX, CUBIN = 1, 2
SHARE = 0.01
"""A capability counts that has at least this share of the entries of the one with the most. PyTorch's library, for
example, has one entry of 449 for 8.9."""


def entries(data: mmap.mmap | bytes) -> Iterator[tuple[int, int]]:
    """Yield the kind and the compute capability, such as 86, of each entry of each archive in a library."""
    start = data.find(MAGIC)
    while 0 <= start <= len(data) - ARCHIVE.size:
        _magic, version, header, size = ARCHIVE.unpack_from(data, start)
        end = start + header + size
        if version != 1 or header != ARCHIVE.size or end > len(data):
            start = data.find(MAGIC, start + 1)
            continue
        at = start + header
        while at + ENTRY.size <= end:
            kind, _, header, size, *_, capability = ENTRY.unpack_from(data, at)
            yield kind, capability
            at += header + size
        start = data.find(MAGIC, end)


def kernels(data: mmap.mmap | bytes) -> tuple[list[str], str | None]:
    """Return the compute capabilities that a library has machine code for, and the newest one that it has PTX for."""
    counts = Counter(entries(data))
    most = max(counts.values(), default=0)
    by_kind = {
        kind: sorted(
            capability for (other, capability), count in counts.items() if other == kind and count >= most * SHARE
        )
        for kind in (CUBIN, PTX)
    }
    return [dotted(capability) for capability in by_kind[CUBIN]], next(map(dotted, reversed(by_kind[PTX])), None)


def dotted(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def pin(framework: str, package: str) -> str:
    """Return the pin of a package with its checksums."""
    text = (FILES / framework / "requirements-gpu.txt").read_text(encoding="utf-8")
    match = re.search(rf"^{re.escape(package)}==\S+.*(\n    --hash.*)+", text, re.MULTILINE)
    if not match:
        raise SystemExit(f"requirements-gpu.txt of {framework} has no {package}: correct `kernels` of its record.")
    return match[0]


def download(framework: str, package: str, machine: str, folder: str) -> Path | None:
    """Return the wheel of a package for a machine, or None if the pins have none."""
    requirements = Path(folder, "pin.txt")
    requirements.write_text(pin(framework, package) + "\n", encoding="utf-8")
    process = subprocess.run(
        [*(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--dest", folder)]
        + [*("--only-binary", ":all:", "--python-version", "3.11", "--requirement", str(requirements))]
        + [f"--platform={platform}_{machine}" for platform in PLATFORMS],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode and not re.search("No matching distribution|DO NOT MATCH THE HASHES", process.stderr):
        raise SystemExit(process.stderr.strip())
    return next(Path(folder).glob("*.whl"), None)


def read(framework: str, package: str, machine: str) -> Iterator[tuple[str, list[str], str | None]]:
    """Yield the name of each library of a package with its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = download(framework, package, machine, folder)
        if not wheel:
            return
        with zipfile.ZipFile(wheel) as archive:
            for library in RECORDS[framework].kernels[package]:
                name = next((name for name in archive.namelist() if name.endswith(f"/{library}")), None)
                if name:
                    path = archive.extract(name, folder)
                    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                        yield library, *kernels(data)


def table(framework: str) -> dict[str, Any]:
    """Return the table of a framework. For a machine that its own library has no kernels for, there is no other row."""
    text = (FILES / framework / "requirements-gpu.txt").read_text(encoding="utf-8")
    cuda = re.findall(r"^nvidia-cuda-runtime(?:-cu\d+)?==(\d+)\.(\d+)", text, re.MULTILINE)[0]
    rows = []
    for machine, in_wheels in MACHINES.items():
        for package in RECORDS[framework].kernels:
            read_rows = [
                {"machine": machine, "package": pin(framework, package).split()[0], "library": library}
                | {"kernels": native, "ptx": None if library in CUDNN_8 else ptx}
                for library, native, ptx in read(framework, package, in_wheels)
            ]
            rows += read_rows
            print(framework, machine, package, read_rows, flush=True)
            if not any(row["kernels"] for row in read_rows):
                break
    return {
        "made": f"{datetime.datetime.now(datetime.UTC).date()} by tools/{Path(__file__).name}",
        "cuda": ".".join(cuda),
        "driver": LEAST_DRIVERS[cuda[0]],
        "libraries": rows,
    }


def lines(content: dict[str, Any]) -> str:
    """Return a table as JSON with a line for each library."""
    head = json.dumps({key: value for key, value in content.items() if key != "libraries"}, indent=2)
    rows = ",\n".join(f"    {json.dumps(row)}" for row in content["libraries"])
    return f'{head[:-2]},\n  "libraries": [\n{rows}\n  ]\n}}\n'


def main(frameworks: Sequence[str]) -> None:
    for framework in frameworks or RECORDS:
        (FILES / framework / "gpu.json").write_text(lines(table(framework)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
