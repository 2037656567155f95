"""Generate images in the form of CIFAR-10, MNIST or COCO that a network can learn, where the real ones are missing.

Each class is a coarse pattern of its own; each image is its class's pattern, shifted and with noise. A file GENERATED
marks the folder: accuracies on it show that training works, and nothing about real images.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from atomic_file import replacing

CLASSES = 10
SIGNAL, NOISE = 0x3F, 0xBF
"""The largest byte of a pattern and of noise. Their sum is at most 254, so that no byte carries over."""


def images(count: int, side: int, planes: int, seed: str, skew: int) -> Iterator[tuple[int, bytes]]:
    """Yield class and pixels, plane after plane. With a skew of n, sample i has a class c with c % n == i % n."""
    patterns = [_pattern(side, planes, random.Random(f"class {number}")) for number in range(CLASSES)]
    generator = random.Random(seed)
    size = planes * side * side
    mask = int.from_bytes(bytes([NOISE]) * size, "big")
    for index in range(count):
        label = generator.randrange(index % skew, CLASSES, skew)
        pixels = b"".join(
            _shifted(plane, generator.randrange(4) + side * generator.randrange(4)) for plane in patterns[label]
        )
        noise = int.from_bytes(generator.randbytes(size), "big") & mask
        # Two rows of bytes added as one number each: no byte overflows into the next.
        yield label, (int.from_bytes(pixels, "big") + noise).to_bytes(size, "big")


def _pattern(side: int, planes: int, generator: random.Random) -> list[bytes]:
    """Return planes of squares of four pixels, each of one brightness."""
    squares = (side + 3) // 4
    planes_ = []
    for _unused in range(planes):
        rows = [bytes(generator.randrange(SIGNAL + 1) for _unused in range(squares)) for _unused in range(squares)]
        wide = [bytes(row[column // 4] for column in range(side)) for row in rows]
        planes_.append(b"".join(wide[row // 4] for row in range(side)))
    return planes_


def _shifted(plane: bytes, by: int) -> bytes:
    return plane[by:] + plane[:by]


def write(path: Path, pieces: list[bytes]) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.writelines(pieces)


def cifar10(folder: Path, train: list[tuple[int, bytes]], test: list[tuple[int, bytes]]) -> None:
    """Write records of a class and 3072 pixels; five files to train on and one to test."""
    records = [bytes([label]) + pixels for label, pixels in train]
    for part in range(5):
        first, last = len(records) * part // 5, len(records) * (part + 1) // 5
        write(folder / f"data_batch_{part + 1}.bin", records[first:last])
    write(folder / "test_batch.bin", [bytes([label]) + pixels for label, pixels in test])


def mnist(folder: Path, train: list[tuple[int, bytes]], test: list[tuple[int, bytes]]) -> None:
    """Write images and classes to files of their own, each with a header that holds their number."""
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
            record = struct.pack("<IfQQ", 0, label, number, 0) + _png(_interleaved(pixels), 32)
            records.append(struct.pack("<II", 0xCED7230A, len(record)) + record + b"\0" * (-len(record) % 4))
        write(folder / f"cifar10_{name}.rec", records)


def coco(folder: Path, train: list[tuple[int, bytes]], test: list[tuple[int, bytes]]) -> None:
    """Write images of twice the side with one object, or two of one class, and annotations as COCO 2017 has them."""
    (folder / "annotations").mkdir(exist_ok=True)
    categories = [{"id": number + 1, "name": f"pattern {number}"} for number in range(CLASSES)]
    for name, samples in (("train2017", train), ("val2017", test)):
        (folder / name).mkdir(exist_ok=True)
        generator = random.Random(name)
        images, objects = [], []
        for number, (label, pixels) in enumerate(samples, 1):
            canvas = bytearray(byte & SIGNAL for byte in generator.randbytes(3 * 64 * 64))
            # One in each half, so that they do not overlap.
            for half in range(generator.randrange(1, 3)):
                width, height = generator.randrange(20, 33), generator.randrange(20, 33)
                x, y = 32 * half + generator.randrange(33 - width), generator.randrange(65 - height)
                for row in range(height):
                    for plane in range(3):
                        start = 1024 * plane + 32 * row
                        into = 3 * (64 * (y + row) + x) + plane
                        canvas[into : into + 3 * width : 3] = pixels[start : start + width]
                corners = [x, y, x + width, y, x + width, y + height, x, y + height]
                annotation = {"id": len(objects) + 1, "image_id": number, "category_id": label + 1, "iscrowd": 0}
                annotation |= {"bbox": [x, y, width, height], "area": width * height, "segmentation": [corners]}
                objects.append(annotation)
            file = f"{number:012}.png"
            write(folder / name / file, [_png(bytes(canvas), 64)])
            images.append({"id": number, "file_name": file, "width": 64, "height": 64})
        annotations = {"images": images, "annotations": objects, "categories": categories}
        write(folder / "annotations" / f"instances_{name}.json", [json.dumps(annotations).encode()])


def _interleaved(pixels: bytes) -> bytes:
    """Reorder from plane after plane to pixel after pixel."""
    interleaved = bytearray(len(pixels))
    for plane in range(3):
        interleaved[plane::3] = pixels[1024 * plane : 1024 * (plane + 1)]
    return bytes(interleaved)


def _png(interleaved: bytes, side: int) -> bytes:
    rows = b"".join(b"\0" + interleaved[start : start + 3 * side] for start in range(0, len(interleaved), 3 * side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


FORMATS = {"cifar10": (cifar10, 32, 3), "mnist": (mnist, 28, 1), "recordio": (recordio, 32, 3), "coco": (coco, 32, 3)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", choices=FORMATS, default="cifar10")
    parser.add_argument("--train", type=int, default=5000, help="images to train on (%(default)s)")
    parser.add_argument("--test", type=int, default=1000, help="images to test on (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--skew", type=int, default=1, metavar="RANKS", help="that many ranks each get classes that no other rank sees"
    )
    options = parser.parse_args(argv)
    if not 1 <= options.skew <= CLASSES:
        parser.error(f"--skew is {options.skew}: give 1 to {CLASSES}. Example: --skew 2")
    if min(options.train, options.test) < 1:
        parser.error(f"--train is {options.train}, --test is {options.test}: give 1 or more. Example: --train 5000")
    write_as, side, planes = FORMATS[options.format]
    options.folder.mkdir(parents=True, exist_ok=True)
    summary = f"{options.train} + {options.test} images, seed {options.seed}, skew {options.skew}"
    write(options.folder / "GENERATED", [f"Generated by generate.py, not real: {summary}.\n".encode()])
    train = list(images(options.train, side, planes, f"train {options.seed}", options.skew))
    test = list(images(options.test, side, planes, f"test {options.seed}", 1))
    write_as(options.folder, train, test)
    print(f"{options.folder}: {options.train} images to train on, {options.test} to test on, generated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
