"""CIFAR-10 with TensorPack and its HorovodTrainer, as its long recipes have it: one process for each GPU, over mpirun.

By hand: mpirun -np 2 python cifar10_tensorpack.py --data-dir … --run-dir …
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import common
import horovod.tensorflow as hvd
import numpy as np
import tensorflow
import visible_gpus
from tensorpack import (
    Callback,
    Conv2D,
    DataFlow,
    FullyConnected,
    HorovodTrainer,
    MaxPooling,
    ModelDesc,
    ModelSaver,
    OfflinePredictor,
    PeriodicTrigger,
    PredictConfig,
    QueueInput,
    SimpleTrainer,
    SmartInit,
    StopTraining,
    TrainConfig,
    argscope,
    launch_train_with_config,
)
from tensorpack.callbacks import RunUpdateOps, ScalarPrinter
from tensorpack.tfutils.export import ModelExporter

tf = tensorflow.compat.v1
tensorflow.global_variables = tf.global_variables  # where TensorPack 0.11's HorovodTrainer looks for it


class Network(ModelDesc):
    """Return the loss of each sample, and whether it is classified correctly."""

    def __init__(self, options, samples: common.Samples) -> None:
        self.options, self.samples = options, samples

    def judged(self, values: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        raise NotImplementedError

    def inputs(self) -> list[tf.TensorSpec]:
        arrays = {"images": self.samples.images, "labels": self.samples.labels}
        return [tf.TensorSpec((None, *array.shape[1:]), array.dtype, name) for name, array in arrays.items()]

    def build_graph(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        tf.get_variable("epoch", (), tf.int64, tf.zeros_initializer(), trainable=False)  # kept in checkpoints
        values = tf.cast(images, tf.float32) / 127.5 - 1
        with argscope([Conv2D, FullyConnected], kernel_initializer=tf.glorot_uniform_initializer()):
            losses, right = self.judged(values, labels)
        tf.reduce_sum(losses, name="loss")
        tf.reduce_sum(tf.cast(right, tf.int64), name="right")
        decay = self.options.weight_decay
        # A constant 0 would still be computed.
        penalty = tf.add_n([tf.nn.l2_loss(weight) for weight in tf.trainable_variables()]) if decay else 0.0
        return tf.reduce_mean(losses) + decay * penalty

    def optimizer(self) -> tf.train.Optimizer:
        rate = tf.get_variable("learning_rate", initializer=self.options.lr, trainable=False)
        if self.options.optimizer == "adam":
            return tf.train.AdamOptimizer(rate)
        return tf.train.MomentumOptimizer(rate, self.options.momentum)


class Classifier(Network):
    def judged(self, values: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        layers = self.options.num_layers
        with tf.variable_scope("", custom_getter=in_16_bits if self.options.mixed_precision else None):
            values = tf.cast(values, tf.bfloat16) if self.options.mixed_precision else values
            scores = lenet(values) if self.options.network == "lenet" else resnet(values, layers)
        scores = tf.identity(tf.cast(scores, tf.float32), name="result")
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        return losses, tf.equal(tf.argmax(scores, 1), labels)


def in_16_bits(getter, name, *arguments, dtype=None, **settings) -> tf.Tensor:
    """Get a variable of 32 bits, for computing. bfloat16 has their range, so that losses need no scaling."""
    variable = getter(name, *arguments, dtype=tf.float32, **settings)
    return tf.cast(variable, dtype) if dtype == tf.bfloat16 else variable


def lenet(values: tf.Tensor) -> tf.Tensor:
    for number, width in enumerate((20, 50)):
        values = Conv2D(f"conv{number}", values, width, 5, activation=tf.nn.relu)
        values = MaxPooling(f"pool{number}", values, 2)
    values = FullyConnected("full", values, 256, activation=tf.nn.relu)
    return FullyConnected("scores", values, 10)


def resnet(values: tf.Tensor, depth: int) -> tf.Tensor:
    with argscope(Conv2D, use_bias=False):
        values = tf.nn.relu(normalised("first_norm", Conv2D("first", values, 16, 3)))
        for width in (16, 32, 64):
            for number in range((depth - 2) // 6):
                with tf.variable_scope(f"block{width}.{number}"):
                    values = block(values, width)
    return FullyConnected("scores", tf.reduce_mean(values, (1, 2)), 10)


def block(values: tf.Tensor, width: int) -> tf.Tensor:
    stride = 1 if values.shape[-1] == width else 2
    body = tf.nn.relu(normalised("norm1", Conv2D("conv1", values, width, 3, strides=stride)))
    body = normalised("norm2", Conv2D("conv2", body, width, 3))
    shortcut = values if stride == 1 else Conv2D("shortcut", values, width, 1, strides=stride)
    return tf.nn.relu(body + shortcut)


def normalised(name: str, values: tf.Tensor) -> tf.Tensor:
    """Normalize groups and not batches, whose statistics the ranks would have to agree on."""
    _unused, rows, columns, width = values.shape
    grouped = tf.reshape(values, (-1, rows, columns, 8, width // 8))
    mean, variance = tf.nn.moments(grouped, (1, 2, 4), keepdims=True)
    even = tf.reshape((grouped - mean) * tf.math.rsqrt(variance + 1e-5), (-1, rows, columns, width))
    with tf.variable_scope(name):
        scale = tf.get_variable("scale", (width,), initializer=tf.ones_initializer())
        return even * scale + tf.get_variable("shift", (width,), initializer=tf.zeros_initializer())


class Batches(DataFlow):
    """This rank's batches. Each iteration is an epoch."""

    def __init__(self, shard: common.Samples, options, steps: int, done: int) -> None:
        self.shard, self.options, self.steps, self.epoch = shard, options, steps, done

    def __iter__(self) -> Iterator[list[np.ndarray]]:
        self.epoch += 1
        yield from map(list, common.batches(self.shard, self.options, hvd.rank(), self.epoch - 1, self.steps))

    def __len__(self) -> int:
        return self.steps


class TensorPack(common.Learner):
    """The parts of a network that training does not need."""

    def __init__(self, predict) -> None:
        self.rank, self.world, self.predict = hvd.rank(), hvd.size(), predict

    def right(self, images, labels) -> int:
        return int(self.predict(images, labels)[0])

    def total(self, number: float) -> float:
        return total(number)


def total(number: float) -> float:
    """Return the sum over all ranks, in a graph of its own."""
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        return float(session.run(hvd.allreduce(tf.constant(number, tf.float64), op=hvd.Sum)))


class Watch(Callback):
    """Metrics after each step, evaluation after each epoch, on all ranks."""

    _chief_only = False

    def __init__(self, metrics: common.Metrics, options, test: common.Samples, plan: common.Schedule, saver) -> None:
        self.metrics, self.options, self.test, self.plan, self.saver = metrics, options, test, plan, saver

    def _setup_graph(self) -> None:
        self.learner = TensorPack(self.trainer.get_predictor(["images", "labels"], ["right"]))
        if self.options.no_exchange:
            self.learner.total = lambda number: number
        with tf.variable_scope("", reuse=True):
            self.next_epoch = tf.assign_add(tf.get_variable("epoch", (), tf.int64), 1)
            self.rate_variable = tf.get_variable("learning_rate", ())
        self.tensors = ["loss:0", "right:0"]

    def _before_train(self) -> None:
        self._set_learning_rate()

    def _set_learning_rate(self) -> None:
        step = self.metrics.step
        rate = common.learning_rate(self.options, step // self.plan.steps_per_epoch, step)
        self.rate_variable.load(rate, self.trainer.sess)

    def _before_epoch(self) -> None:
        self.metrics.begin_epoch()

    def _before_run(self, _unused):
        return self.tensors

    def _after_run(self, _unused, values) -> None:
        loss, right = values.results
        self.metrics.add(self.options.batch_size, float(loss), int(right))

    def _trigger_step(self) -> None:
        self._set_learning_rate()
        if self.metrics.step == self.plan.total and self.local_step < self.plan.steps_per_epoch - 1:
            self._end_epoch()
            if self.saver and hvd.rank() == 0:
                self.saver.trigger()
            raise StopTraining

    def _trigger_epoch(self) -> None:
        self.trainer.sess.run(self.next_epoch)
        self._end_epoch()

    def _end_epoch(self) -> None:
        self.metrics.end_epoch(common.right_of(self.learner, self.options, self.test) / len(self.test))


def main() -> None:
    run(__doc__, common.load, Classifier)


def run(
    description: str,
    load: Callable[[Path], tuple[common.Samples, common.Samples]],
    network: Callable[..., Network],
) -> None:
    """Train or evaluate, as the options say."""
    hvd.init()
    tf.disable_eager_execution()  # TensorPack would do it, but after the seed is set
    options = common.arguments(description, ("horovod",), "horovod")
    gpus = tensorflow.config.list_physical_devices("GPU")
    visible_gpus.require("tensorflow", lambda: len(gpus))
    for gpu in gpus if options.mixed_precision else ():
        visible_gpus.require_bfloat16(tensorflow.config.experimental.get_device_details(gpu)["compute_capability"])
    train, test = load(options.data_dir)
    model = network(options, train)
    checkpoints = options.run_dir / "checkpoints"
    # One rank looks, since a folder on a network may not look the same to all of them.
    newest = (
        tensorflow.train.latest_checkpoint(str(checkpoints)) if hvd.rank() == 0 and not options.no_exchange else None
    )
    done = int(total(epoch_of(newest) if newest else 0))
    if newest:
        print(f"resumes from {Path(newest).name}, after epoch {done}", flush=True)
    if options.evaluate:
        evaluate(options, model, test, checkpoints)
    else:
        train = train.first(options.num_examples)
        plan = common.schedule(options, len(train), hvd.size())
        if int(total(step_of(newest) if newest else 0)) < plan.total:
            learn(options, model, train, test, checkpoints, newest, done, plan)
        if hvd.rank() == 0 and not options.no_exchange:
            export(model, checkpoints, options.run_dir / "model")
    total(0)  # No rank leaves while another still needs it.


def epoch_of(checkpoint: str) -> int:
    return int(tensorflow.train.load_checkpoint(checkpoint).get_tensor("epoch"))


def step_of(checkpoint: str) -> int:
    return int(tensorflow.train.load_checkpoint(checkpoint).get_tensor("global_step"))


def learn(options, model, train, test, checkpoints: Path, newest: str | None, done: int, plan: common.Schedule) -> None:
    """Train. A run that resumes from a checkpoint within an epoch repeats that epoch."""
    tf.set_random_seed(options.seed)
    metrics = common.Metrics(options.run_dir, hvd.rank(), hvd.size(), plan, done, 0, options.log_steps)
    saver = None if options.no_exchange else ModelSaver(common.CHECKPOINTS_KEPT, checkpoint_dir=str(checkpoints))
    watch = Watch(metrics, options, test, plan, saver)
    saves = [PeriodicTrigger(saver, every_k_steps=options.checkpoint_steps, every_k_epochs=1)] if saver else []
    config = TrainConfig(
        model=model,
        data=QueueInput(Batches(train.shard(hvd.rank(), hvd.size()), options, plan.steps_per_epoch, done)),
        callbacks=[watch, *saves],
        extra_callbacks=[RunUpdateOps()],
        monitors=[ScalarPrinter()],
        session_init=SmartInit(newest) if newest else None,  # HorovodTrainer gives it to the other ranks
        steps_per_epoch=plan.steps_per_epoch,
        starting_epoch=done + 1,
        max_epoch=plan.epochs,
    )
    launch_train_with_config(config, SimpleTrainer() if options.no_exchange else HorovodTrainer())


def evaluate(options, model, test, checkpoints: Path) -> None:
    checkpoint = str(options.checkpoint or tensorflow.train.latest_checkpoint(str(checkpoints)) or "")
    if not checkpoint:
        sys.exit(f"{checkpoints} has no checkpoint to evaluate: train first.")
    learner = TensorPack(predictor(model, checkpoint, ["images", "labels"], "right"))
    common.evaluate(learner, options, test, epoch_of(checkpoint))


def export(model: Network, checkpoints: Path, folder: Path) -> None:
    """Write a SavedModel. Its function `prediction_pipeline` takes images, and returns scores."""
    shutil.rmtree(folder, ignore_errors=True)
    newest = tensorflow.train.latest_checkpoint(str(checkpoints))
    names = {"input_names": ["images"], "output_names": ["result"]}
    ModelExporter(PredictConfig(model=model, session_init=SmartInit(newest), **names)).export_serving(str(folder))


def predictor(model: Network, checkpoint: str, inputs: list[str], output: str) -> OfflinePredictor:
    names = {"input_names": inputs, "output_names": [output]}
    return OfflinePredictor(PredictConfig(model=model, session_init=SmartInit(checkpoint), **names))


if __name__ == "__main__":
    main()
