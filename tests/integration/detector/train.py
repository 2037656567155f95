"""train.py --logdir DIR [--load CHECKPOINT] --config KEY=VALUE …"""

from __future__ import annotations

import detector
import horovod.tensorflow as hvd
from tensorpack import (
    Callback,
    DataFromGenerator,
    HorovodTrainer,
    ModelSaver,
    QueueInput,
    SmartInit,
    TrainConfig,
    launch_train_with_config,
    logger,
)
from tensorpack.callbacks import ThroughputTracker


class Evaluate(Callback):
    def __init__(self, folder: str, which: str) -> None:
        self.folder, self.which = folder, which

    def _setup_graph(self) -> None:
        self.predict = self.trainer.get_predictor(["images"], ["detections"])

    def _trigger_epoch(self) -> None:
        detected = detector.detect(self.predict, self.folder, self.which.removeprefix("coco_"))
        for name, value in detector.scores(*detected).items():
            self.trainer.monitors.put_scalar(f"{self.which}-{name}", value)


def main() -> None:
    arguments, config = detector.parsed("--logdir")
    hvd.init()
    if hvd.rank() == 0:
        logger.set_logger_dir(arguments.logdir, "d")
    steps, schedule = config["TRAIN.STEPS_PER_EPOCH"], config["TRAIN.LR_SCHEDULE"]
    folder = config["DATA.BASEDIR"]
    train = TrainConfig(
        model=detector.Detector(),
        data=QueueInput(DataFromGenerator(lambda: detector.batches(folder, hvd.rank()))),
        callbacks=[
            ModelSaver(),
            ThroughputTracker(samples_per_step=detector.BATCH * hvd.size()),
            *(Evaluate(folder, which) for which in config["DATA.VAL"]),
        ],
        steps_per_epoch=steps,
        starting_epoch=config.get("TRAIN.STARTING_EPOCH", 1),
        max_epoch=int(schedule[-1] * 8 / hvd.size() // steps),
        session_init=SmartInit(arguments.load) if arguments.load and hvd.rank() == 0 else None,
    )
    launch_train_with_config(train, HorovodTrainer())


if __name__ == "__main__":
    main()
