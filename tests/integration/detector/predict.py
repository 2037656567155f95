"""predict.py --load CHECKPOINT --evaluate FILE --config KEY=VALUE …"""

from __future__ import annotations

import detector
from tensorpack import OfflinePredictor, PredictConfig, SmartInit

if __name__ == "__main__":
    arguments, config = detector.parsed("--evaluate")
    names = {"input_names": ["images"], "output_names": ["detections"]}
    predict = OfflinePredictor(
        PredictConfig(model=detector.Detector(), session_init=SmartInit(arguments.load), **names)
    )
    for data in config["DATA.VAL"]:
        coco, results = detector.detect(predict, config["DATA.BASEDIR"], data.removeprefix("coco_"))
        detector.scores(coco, results)
        detector.write(results, f"{arguments.evaluate}-{data}")
