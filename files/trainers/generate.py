"""Makes images in the form of CIFAR-10, MNIST or COCO that a network can learn, where the real ones cannot be had.

Each class is a coarse pattern of its own; each image is its class's pattern, moved about and under noise. What comes
out is marked by a file GENERATED: accuracies on it say that training works, and nothing about real images.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

CLASSES = 10
SIGNAL, NOISE = 0x3F, 0xBF
"""What a byte of pattern and a byte of noise may be: together never above 254, so that no sum carries over."""


def images(count: int, side: int, planes: int, seed: str, skew: int) -> Iterator[tuple[int, bytes]]:
    """Class and pixels, plane after plane. With a skew of n, sample i has a class c with c % n == i % n."""
    patterns = [_pattern(side, planes, random.Random(f"class {number}")) for number in range(CLASSES)]
    chance = random.Random(seed)
    size = planes * side * side
    quiet = int.from_bytes(bytes([NOISE]) * size, "big")
    for index in range(count):
        label = chance.randrange(index % skew, CLASSES, skew)
        pixels = b"".join(_moved(plane, chance.randrange(4) + side * chance.randrange(4)) for plane in patterns[label])
        noise = int.from_bytes(chance.randbytes(size), "big") & quiet
        # Two rows of bytes added as one number each: no byte overflows into the next.
        yield label, (int.from_bytes(pixels, "big") + noise).to_bytes(size, "big")


def _pattern(side: int, planes: int, chance: random.Random) -> list[bytes]:
    """Squares of four pixels, each of one brightness."""
    squares = (side + 3) // 4
    found = []
    for _unused in range(planes):
        rows = [bytes(chance.randrange(SIGNAL + 1) for _unused in range(squares)) for _unused in range(squares)]
        wide = [bytes(row[column // 4] for column in range(side)) for row in rows]
        found.append(b"".join(wide[row // 4] for row in range(side)))
    return found


def _moved(plane: bytes, by: int) -> bytes:
    return plane[by:] + plane[:by]


def write(path: Path, pieces: list[bytes]) -> None:
    """The whole file or none."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.writelines(pieces)
    os.chmod(name, 0o644)
    os.replace(name, path)


def cifar10(folder: Path, train: list[tuple[int, bytes]], test: list[tuple[int, bytes]]) -> None:
    """Records of a class and 3072 pixels; five files to train on and one to test."""
    records = [bytes([label]) + pixels for label, pixels in train]
    for part in range(5):
        first, last = len(records) * part // 5, len(records) * (part + 1) // 5
        write(folder / f"data_batch_{part + 1}.bin", records[first:last])
    write(folder / "test_batch.bin", [bytes([label]) + pixels for label, pixels in test])


def mnist(folder: Path, train: list[tuple[int, bytes]], test: list[tuple[int, bytes]]) -> None:
    """Images and classes in files of their own, each with a head that says how many there are."""
    for name, samples in (("train", train), ("t10k", test)):
        head = struct.pack(">iiii", 2051, len(samples), 28, 28)
        write(folder / f"{name}-images-idx3-ubyte", [head, *(pixels for _unused, pixels in samples)])
        labels = bytes(label for label, _unused in samples)
        write(folder / f"{name}-labels-idx1-ubyte", [struct.pack(">ii", 2049, len(samples)), labels])


def recordio(folder: Path, train: list[tuple[int, bytes]], test: list[tuple[int, bytes]]) -> None:
    """MXNet's: a head with the class, then the image as PNG, each record filled up to a multiple of four bytes."""
    for name, samples in (("train", train), ("val", test)):
        records = []
        for number, (label, pixels) in enumerate(samples):
            record = struct.pack("<IfQQ", 0, label, number, 0) + _png(_mixed(pixels), 32)
            records.append(struct.pack("<II", 0xCED7230A, len(record)) + record + b"\0" * (-len(record) % 4))
        write(folder / f"cifar10_{name}.rec", records)


def coco(folder: Path, train: list[tuple[int, bytes]], test: list[tuple[int, bytes]]) -> None:
    """Images of twice the side with one object, or two of one class, and annotations as COCO 2017 has them."""
    (folder / "annotations").mkdir(exist_ok=True)
    categories = [{"id": number + 1, "name": f"pattern {number}"} for number in range(CLASSES)]
    for name, samples in (("train2017", train), ("val2017", test)):
        (folder / name).mkdir(exist_ok=True)
        chance = random.Random(name)
        images, objects = [], []
        for number, (label, pixels) in enumerate(samples, 1):
            canvas = bytearray(byte & SIGNAL for byte in chance.randbytes(3 * 64 * 64))
            # One in each half, so that none hides another.
            for half in range(chance.randrange(1, 3)):
                width, height = chance.randrange(20, 33), chance.randrange(20, 33)
                x, y = 32 * half + chance.randrange(33 - width), chance.randrange(65 - height)
                for row in range(height):
                    for plane in range(3):
                        start = 1024 * plane + 32 * row
                        into = 3 * (64 * (y + row) + x) + plane
                        canvas[into : into + 3 * width : 3] = pixels[start : start + width]
                corners = [x, y, x + width, y, x + width, y + height, x, y + height]
                told = {"id": len(objects) + 1, "image_id": number, "category_id": label + 1, "iscrowd": 0}
                told |= {"bbox": [x, y, width, height], "area": width * height, "segmentation": [corners]}
                objects.append(told)
            file = f"{number:012}.png"
            write(folder / name / file, [_png(bytes(canvas), 64)])
            images.append({"id": number, "file_name": file, "width": 64, "height": 64})
        told_of = {"images": images, "annotations": objects, "categories": categories}
        write(folder / "annotations" / f"instances_{name}.json", [json.dumps(told_of).encode()])


def _mixed(pixels: bytes) -> bytes:
    """Pixel after pixel, not plane after plane."""
    mixed = bytearray(len(pixels))
    for plane in range(3):
        mixed[plane::3] = pixels[1024 * plane : 1024 * (plane + 1)]
    return bytes(mixed)


def _png(mixed: bytes, side: int) -> bytes:
    rows = b"".join(b"\0" + mixed[start : start + 3 * side] for start in range(0, len(mixed), 3 * side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


FORMATS = {"cifar10": (cifar10, 32, 3), "mnist": (mnist, 28, 1), "recordio": (recordio, 32, 3), "coco": (coco, 32, 3)}


def main(words: list[str] | None = None) -> int:
    asking = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asking.add_argument("folder", type=Path)
    asking.add_argument("--format", choices=FORMATS, default="cifar10")
    asking.add_argument("--train", type=int, default=5000, help="images to train on (%(default)s)")
    asking.add_argument("--test", type=int, default=1000, help="images to test on (%(default)s)")
    asking.add_argument("--seed", type=int, default=0)
    asking.add_argument(
        "--skew", type=int, default=1, metavar="RANKS", help="that many ranks each get classes that no other rank sees"
    )
    asked = asking.parse_args(words)
    if not 1 <= asked.skew <= CLASSES:
        asking.error(f"--skew is {asked.skew}: give 1 to {CLASSES}. Example: --skew 2")
    if min(asked.train, asked.test) < 1:
        asking.error(f"--train is {asked.train}, --test is {asked.test}: give 1 or more. Example: --train 5000")
    write_as, side, planes = FORMATS[asked.format]
    asked.folder.mkdir(parents=True, exist_ok=True)
    made = f"{asked.train} + {asked.test} images, seed {asked.seed}, skew {asked.skew}"
    write(asked.folder / "GENERATED", [f"Made by generate.py, not real: {made}.\n".encode()])
    train = list(images(asked.train, side, planes, f"train {asked.seed}", asked.skew))
    test = list(images(asked.test, side, planes, f"test {asked.seed}", 1))
    write_as(asked.folder, train, test)
    print(f"{asked.folder}: {asked.train} images to train on, {asked.test} to test on, generated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
