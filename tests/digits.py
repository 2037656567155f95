"""Made-up digits in the form of MNIST's files: every pixel of an image tells its label."""

from __future__ import annotations

import struct


def digits(which: str, count: int) -> dict[str, bytes]:
    """Return both files of a part (train, t10k) by their names."""
    labels = bytes(number % 10 for number in range(count))
    images = b"".join(bytes([20 * label]) * 784 for label in labels)
    return {
        f"{which}-images-idx3-ubyte": struct.pack(">IIII", 2051, count, 28, 28) + images,
        f"{which}-labels-idx1-ubyte": struct.pack(">II", 2049, count) + labels,
    }
