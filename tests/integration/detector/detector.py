"""A detector that is small enough for a processor, with the command line and the scalars of TensorPack's FasterRCNN.

An image is SIDE by SIDE pixels, in cells. The cell that an object has its middle in tells its class, and where it is.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import tensorflow
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from tensorpack import Conv2D, ModelDesc
from tensorpack.tfutils.summary import add_moving_summary

tf = tensorflow.compat.v1
SIDE, CELLS, CLASSES = 64, 8, 11
"""The first class stands for none."""
BATCH = 8


def parsed(*options: str) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the command line, and the settings after --config."""
    parser = argparse.ArgumentParser()
    for option in ("--load", *options):
        parser.add_argument(option)
    parser.add_argument("--config", nargs="+", default=[])
    arguments = parser.parse_args()
    config = {}
    for word in arguments.config:
        key, _unused, value = word.partition("=")
        try:
            config[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            config[key] = value
    return arguments, config


class Detector(ModelDesc):
    def inputs(self) -> list[tf.TensorSpec]:
        cells = tf.TensorSpec((None, CELLS, CELLS, 5), tf.float32, "cells")
        return [tf.TensorSpec((None, SIDE, SIDE, 3), tf.uint8, "images"), cells]

    def build_graph(self, images: tf.Tensor, cells: tf.Tensor) -> tf.Tensor:
        values = tf.cast(images, tf.float32) / 127.5 - 1
        for number, (width, stride) in enumerate(((16, 2), (32, 2), (64, 2), (64, 1))):
            values = Conv2D(f"conv{number}", values, width, 3, strides=stride, activation=tf.nn.relu)
        values = Conv2D("output", values, CLASSES + 4, 1)
        scores, boxes = values[..., :CLASSES], tf.sigmoid(values[..., CLASSES:])
        tf.concat([tf.nn.softmax(scores), boxes], -1, name="detections")
        classes, true = tf.cast(cells[..., 0], tf.int64), cells[..., 1:]
        present = tf.cast(classes > 0, tf.float32)
        wrong = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=scores)
        # Most cells have nothing: the others together count for as much.
        distance = present * (wrong + tf.reduce_sum(tf.abs(boxes - true), -1))
        objects = tf.maximum(tf.reduce_sum(present), 1.0)
        total_cost = tf.reduce_mean((1 - present) * wrong) + tf.reduce_sum(distance) / objects
        total_cost = tf.identity(total_cost, name="total_cost")
        add_moving_summary(total_cost)
        return total_cost

    def optimizer(self) -> tf.train.Optimizer:
        return tf.train.AdamOptimizer(0.002)


def annotated(folder: str, which: str) -> COCO:
    return COCO(f"{folder}/annotations/instances_{which}.json")


def images_of(coco: COCO, folder: str, which: str) -> tuple[list[dict[str, Any]], np.ndarray]:
    records = coco.loadImgs(sorted(coco.getImgIds()))
    read = [cv2.imread(str(Path(folder, which, record["file_name"]))) for record in records]
    return records, np.array([cv2.resize(image, (SIDE, SIDE)) for image in read])


def batches(folder: str, rank: int) -> Iterator[list[np.ndarray]]:
    """Yield random batches for ever."""
    coco = annotated(folder, "train2017")
    records, images = images_of(coco, folder, "train2017")
    cells = np.zeros((len(records), CELLS, CELLS, 5), np.float32)
    for number, record in enumerate(records):
        for annotation in coco.loadAnns(coco.getAnnIds(record["id"])):
            x, y, width, height = np.array(annotation["bbox"]) / ([record["width"], record["height"]] * 2)
            column, row = (x + width / 2) * CELLS, (y + height / 2) * CELLS
            at = min(int(row), CELLS - 1), min(int(column), CELLS - 1)
            cells[number][at] = annotation["category_id"], column - at[1], row - at[0], width, height
    generator = np.random.default_rng(rank)
    while True:
        chosen = generator.integers(0, len(images), BATCH)
        yield [images[chosen], cells[chosen]]


def detect(predict: Any, folder: str, which: str) -> tuple[COCO, list[dict[str, Any]]]:
    """Return the annotations and the detections in COCO's form."""
    coco = annotated(folder, which)
    records, images = images_of(coco, folder, which)
    results = []
    for record, image in zip(records, images, strict=True):
        (cells,) = predict(image[None])[0]
        for row, column in np.argwhere(cells[..., 1:CLASSES].max(-1) > 0.05):
            chances, (x, y, width, height) = cells[row, column, 1:CLASSES], cells[row, column, CLASSES:]
            corner = (column + x) / CELLS - width / 2, (row + y) / CELLS - height / 2
            box = np.array([*corner, width, height]) * ([record["width"], record["height"]] * 2)
            result = {"image_id": record["id"], "category_id": int(chances.argmax()) + 1}
            results.append({**result, "bbox": box.tolist(), "score": float(chances.max())})
    return coco, results


def scores(coco: COCO, results: Sequence[dict[str, Any]]) -> dict[str, float]:
    if not results:
        return {"mAP(bbox)/IoU=0.5:0.95": 0.0}
    judge = COCOeval(coco, coco.loadRes(results), "bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    return {"mAP(bbox)/IoU=0.5:0.95": float(judge.stats[0])}


def write(results: Sequence[dict[str, Any]], file: str) -> None:
    Path(file).write_text(json.dumps(results), encoding="utf-8")
