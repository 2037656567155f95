"""The data sets that have a name, as their publishers give them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A file to fetch, and the checksum that its publisher names for it."""

    name: str
    md5: str


@dataclass(frozen=True)
class Set:
    home: str
    """an address that ends with /"""
    parts: tuple[Part, ...]
    files: Mapping[str, int]
    """what it is when it is unpacked, with the sizes"""
    link: str = ""
    """where old scripts look for it below the mount point"""


SETS: Mapping[str, Set] = {
    "cifar10": Set(
        "https://www.cs.toronto.edu/~kriz/",
        (Part("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
        {name: 30_730_000 for name in (*(f"data_batch_{part}.bin" for part in range(1, 6)), "test_batch.bin")},
        "cifar10_data",
    ),
    "mnist": Set(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            Part("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            Part("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            Part("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            Part("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        {
            "train-images-idx3-ubyte": 47_040_016,
            "train-labels-idx1-ubyte": 60_008,
            "t10k-images-idx3-ubyte": 7_840_016,
            "t10k-labels-idx1-ubyte": 10_008,
        },
    ),
}
GENERATED = "generated"
