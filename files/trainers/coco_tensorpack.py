"""Objects in images of COCO's form, with TensorPack and its HorovodTrainer, and a network small enough for a processor.

By hand: mpirun -np 2 python coco_tensorpack.py --data-dir … --run-dir …

An image is made SIDE by SIDE pixels and is divided into cells. The cell that an object has its middle in tells its
class, and where it is. `accuracy` is the share of images of which all objects are found: the right class, and a box
that overlaps with the true one by half. At the end rank 0 prints COCO's own measure, the average precision.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cifar10_tensorpack as base
import common
import cv2
import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from tensorpack import Conv2D

tf = base.tf
SIDE, CELLS = 64, 8


class Detector(base.Network):
    def __init__(self, options, samples: common.Samples) -> None:
        super().__init__(options, samples)
        self.classes = 1 + len(annotations(options.data_dir, "train").getCatIds())
        """The first stands for none."""

    def judged(self, values: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        for number, (width, stride) in enumerate(((16, 2), (32, 2), (64, 2), (64, 1))):
            values = Conv2D(f"conv{number}", values, width, 3, strides=stride, use_bias=False)
            values = tf.nn.relu(base.normalised(f"norm{number}", values))
        values = Conv2D("cells", values, self.classes + 4, 1)
        scores, boxes = values[..., : self.classes], tf.sigmoid(values[..., self.classes :])
        tf.concat([tf.nn.softmax(scores), boxes], -1, name="detections")
        classes, true = tf.cast(labels[..., 0], tf.int64), labels[..., 1:]
        present = tf.cast(classes > 0, tf.float32)
        wrong = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=scores)
        # Most cells have nothing: the others together count for as much.
        distance = present * (wrong + tf.reduce_sum(tf.abs(boxes - true), -1))
        objects = tf.maximum(tf.reduce_sum(present, (1, 2)), 1.0)
        losses = tf.reduce_mean((1 - present) * wrong, (1, 2)) + tf.reduce_sum(distance, (1, 2)) / objects
        detected = tf.equal(tf.argmax(scores, -1), classes) & (overlap(boxes, true) > 0.5)
        return losses, tf.reduce_all(detected | tf.equal(classes, 0), (1, 2))


def overlap(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Return the intersection over union of boxes: centre in cells, width and height in images."""
    middles, sizes = (one[..., :2] / CELLS, other[..., :2] / CELLS), (one[..., 2:], other[..., 2:])
    near = tf.maximum(*(middle - size / 2 for middle, size in zip(middles, sizes, strict=True)))
    far = tf.minimum(*(middle + size / 2 for middle, size in zip(middles, sizes, strict=True)))
    shared = tf.reduce_prod(tf.maximum(far - near, 0.0), -1)
    return shared / (tf.reduce_prod(sizes[0], -1) + tf.reduce_prod(sizes[1], -1) - shared)


def annotations(folder: Path, which: str) -> COCO:
    file = folder / "annotations" / f"instances_{which}2017.json"
    if not file.exists():
        sys.exit(f"{folder} has no annotations/{file.name}: give a folder as COCO 2017 is unpacked.")
    return COCO(str(file))


def load(folder: Path) -> tuple[common.Samples, common.Samples]:
    return samples(folder, "train"), samples(folder, "val")


def samples(folder: Path, which: str) -> common.Samples:
    coco = annotations(folder, which)
    numbers = {category: number for number, category in enumerate(sorted(coco.getCatIds()), 1)}
    images, labels = [], []
    for image in coco.loadImgs(sorted(coco.getImgIds())):
        read = cv2.imread(str(folder / f"{which}2017" / image["file_name"]))
        if read is None:
            sys.exit(f"{folder}/{which}2017/{image['file_name']} is no image that can be read: copy it again.")
        images.append(cv2.resize(read, (SIDE, SIDE)))
        cells = np.zeros((CELLS, CELLS, 5), np.float32)
        for annotation in coco.loadAnns(coco.getAnnIds(image["id"], iscrowd=False)):
            x, y, width, height = np.array(annotation["bbox"]) / ([image["width"], image["height"]] * 2)
            column, row = (x + width / 2) * CELLS, (y + height / 2) * CELLS
            at = min(int(row), CELLS - 1), min(int(column), CELLS - 1)
            cells[at] = numbers[annotation["category_id"]], column - at[1], row - at[0], width, height
        labels.append(cells)
    return common.Samples(np.array(images), np.array(labels))


def precision(options, model: Detector, test: common.Samples, newest: str) -> None:
    """Return the precision as COCO's own program measures it."""
    coco = annotations(options.data_dir, "val")
    predict = base.predictor(model, newest, ["images"], "detections")
    detections = np.concatenate([predict(images)[0] for images, _unused in test.batches(options.batch_size)])
    categories, results = sorted(coco.getCatIds()), []
    for image, cells in zip(coco.loadImgs(sorted(coco.getImgIds())), detections, strict=True):
        for row, column in np.argwhere(cells[..., 1 : model.classes].max(-1) > 0.05):
            chances, (x, y, width, height) = cells[row, column, 1 : model.classes], cells[row, column, model.classes :]
            corner = (column + x) / CELLS - width / 2, (row + y) / CELLS - height / 2
            box = np.array([*corner, width, height]) * ([image["width"], image["height"]] * 2)
            category = categories[int(chances.argmax())]
            one = {
                "image_id": image["id"],
                "category_id": category,
                "bbox": box.tolist(),
                "score": float(chances.max()),
            }
            results.append(one)
    if results:
        judge = COCOeval(coco, coco.loadRes(results), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    print(f"average precision {judge.stats[0] if results else 0:.4f} on {len(test)} images", flush=True)


if __name__ == "__main__":
    base.run(__doc__, load, Detector, precision)
