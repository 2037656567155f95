"""Write data/cifar10_train.rec and data/cifar10_val.rec, which MXNet's train_cifar10.py reads, with made-up images."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from mxnet import recordio

SIDE, CLASSES = 32, 10


def png(label: int) -> bytes:
    """Return an image of stripes whose brightness is the label's."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    row = bytes((25 * label + 3 * column) % 256 for column in range(SIDE) for _channel in range(3))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + row) * SIDE)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


if __name__ == "__main__":
    Path("data").mkdir(exist_ok=True)
    # Each of three ranks has a third, and needs a batch of 32 of either.
    for name in ("train", "val"):
        record = recordio.MXRecordIO(f"data/cifar10_{name}.rec", "w")
        for number in range(256):
            header = recordio.IRHeader(0, number % CLASSES, number, 0)
            record.write(recordio.pack(header, png(number % CLASSES)))
        record.close()
