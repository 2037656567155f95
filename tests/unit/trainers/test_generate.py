"""Generated data: its forms, its marker, and classes that only some ranks see."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import generate
import pytest
from deeplearning.contract.datasets import GENERATED_MARKER


def records(folder: Path, pattern: str) -> list[bytes]:
    data = b"".join(path.read_bytes() for path in sorted(folder.glob(pattern)))
    return [data[start : start + 3073] for start in range(0, len(data), 3073)]


def test_cifar10_is_five_files_to_train_on_and_one_to_test(tmp_path: Path) -> None:
    assert generate.main([str(tmp_path), "--train", "103", "--test", "11"]) == 0
    assert len(list(tmp_path.glob("data_batch_[1-5].bin"))) == 5
    train, test = records(tmp_path, "data_batch_*.bin"), records(tmp_path, "test_batch.bin")
    assert (len(train), len(test)) == (103, 11)
    assert {len(record) for record in train + test} == {3073}
    assert {record[0] for record in train} == set(range(10))
    assert "not real: 103 + 11 images" in (tmp_path / GENERATED_MARKER).read_text()


def test_the_same_seed_gives_the_same_and_another_another(tmp_path: Path) -> None:
    for name, seed in (("one", "1"), ("again", "1"), ("other", "2")):
        generate.main([str(tmp_path / name), "--train", "5", "--test", "5", "--seed", seed])
    one, again, other = (records(tmp_path / name, "*.bin") for name in ("one", "again", "other"))
    assert one == again != other


@pytest.mark.parametrize("ranks", [2, 3, 10])
def test_skewed_shards_share_no_class(tmp_path: Path, ranks: int) -> None:
    generate.main([str(tmp_path), "--train", "400", "--test", "200", "--skew", str(ranks)])
    train = [record[0] for record in records(tmp_path, "data_batch_*.bin")]
    shards = [set(train[rank::ranks]) for rank in range(ranks)]
    assert sum(map(len, shards)) == 10 == len(set.union(*shards))
    assert {record[0] for record in records(tmp_path, "test_batch.bin")} == set(range(10))


def test_a_class_can_be_recognized_by_its_mean(tmp_path: Path) -> None:
    """Images of a class are nearer to each other than to those of another: there is something to learn."""
    generate.main([str(tmp_path), "--train", "200", "--test", "50"])
    by_class: dict[int, list[bytes]] = {}
    for record in records(tmp_path, "data_batch_*.bin"):
        by_class.setdefault(record[0], []).append(record[1:])
    means = {
        label: [sum(pixel) / len(images) for pixel in zip(*images, strict=True)] for label, images in by_class.items()
    }

    def nearest(image: bytes) -> int:
        return min(means, key=lambda label: sum((a - b) ** 2 for a, b in zip(image, means[label], strict=True)))

    test = records(tmp_path, "test_batch.bin")
    assert sum(nearest(record[1:]) == record[0] for record in test) > 0.9 * len(test)


def test_mnist_says_how_many_there_are(tmp_path: Path) -> None:
    generate.main([str(tmp_path), "--format", "mnist", "--train", "30", "--test", "4"])
    images = (tmp_path / "train-images-idx3-ubyte").read_bytes()
    assert struct.unpack(">iiii", images[:16]) == (2051, 30, 28, 28) and len(images) == 16 + 30 * 784
    labels = (tmp_path / "t10k-labels-idx1-ubyte").read_bytes()
    assert struct.unpack(">ii", labels[:8]) == (2049, 4) and len(labels) == 12


def test_recordio_holds_the_same_images_as_png(tmp_path: Path) -> None:
    for kind in ("recordio", "cifar10"):
        generate.main([str(tmp_path), "--format", kind, "--train", "5", "--test", "2"])
    data, images = (tmp_path / "cifar10_train.rec").read_bytes(), []
    while data:
        magic, length = struct.unpack("<II", data[:8])
        assert magic == 0xCED7230A
        _, label, number, _ = struct.unpack("<IfQQ", data[8:32])
        images.append(bytes([int(label)]) + planes(data[32 : 8 + length]))
        assert number == len(images) - 1
        data = data[8 + length + -length % 4 :]
    assert images == records(tmp_path, "data_batch_*.bin")


def planes(png: bytes) -> bytes:
    """Of an image with 32 rows, none of them filtered."""
    start = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[start - 4 : start])
    rows = zlib.decompress(png[start + 4 : start + 4 + length])
    pixels = b"".join(rows[row * 97 + 1 : row * 97 + 97] for row in range(32))
    return b"".join(pixels[plane::3] for plane in range(3))


@pytest.mark.parametrize("option", [["--skew", "0"], ["--skew", "11"], ["--train", "0"], ["--format", "jpg"]])
def test_invalid_arguments_of_generate_are_refused(
    tmp_path: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        generate.main([str(tmp_path / "new"), *option])
    assert ended.value.code == 2 and option[0] in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_coco_is_images_and_boxes_around_what_is_in_them(tmp_path: Path) -> None:
    assert generate.main([str(tmp_path), "--format", "coco", "--train", "30", "--test", "7"]) == 0
    for name, count in (("train2017", 30), ("val2017", 7)):
        coco = json.loads((tmp_path / "annotations" / f"instances_{name}.json").read_text())
        assert [image["id"] for image in coco["images"]] == list(range(1, count + 1))
        assert {thing["image_id"] for thing in coco["annotations"]} == set(range(1, count + 1))
        assert len({thing["id"] for thing in coco["annotations"]}) == len(coco["annotations"]) > count
        assert {thing["category_id"] for thing in coco["annotations"]} <= {
            category["id"] for category in coco["categories"]
        }
        for image in coco["images"]:
            bright = pixels(tmp_path / name / image["file_name"])
            boxes = [thing["bbox"] for thing in coco["annotations"] if thing["image_id"] == image["id"]]
            inside = {(row, column) for x, y, w, h in boxes for row in range(y, y + h) for column in range(x, x + w)}
            assert bright and bright <= inside


def pixels(png: Path) -> set[tuple[int, int]]:
    """Those that are brighter than what is behind."""
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG") and struct.unpack(">II", data[16:24]) == (64, 64)
    size = struct.unpack(">I", data[33:37])[0]
    rows = zlib.decompress(data[41 : 41 + size])
    squares = set()
    for row in range(64):
        line = rows[193 * row + 1 : 193 * (row + 1)]
        squares |= {(row, place // 3) for place, byte in enumerate(line) if byte > generate.SIGNAL}
    return squares
