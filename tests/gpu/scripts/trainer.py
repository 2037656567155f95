"""Train with the example trainer, then measure what this device can do, and print both as JSON.

Arguments: the side of the matrices, the layers of the network, and the trainer's further options.
"""

import json
import runpy
import sys
import time

import torch
from cifar10_pytorch import resnet
from torch.utils.flop_counter import FlopCounterMode

side, layers = int(sys.argv.pop(1)), int(sys.argv.pop(1))
sys.argv += ["--network", "resnet", "--num-layers", str(layers)]
runpy.run_module("cifar10_pytorch", run_name="__main__", alter_sys=True)

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
used = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
with FlopCounterMode(display=False) as counter:
    resnet(3, layers)(torch.zeros(1, 3, 32, 32))

matrix = torch.randn(side, side, dtype=torch.bfloat16, device=device)


def seconds_of(count: int) -> float:
    started = time.monotonic()
    for _unused in range(count):
        product = matrix @ matrix
    # To copy a number waits for the GPU.
    product[0, 0].item()
    return time.monotonic() - started


seconds_of(3)
result = {
    "device": device.type,
    "bytes_on_gpu": used,
    # Backward takes about twice the operations of forward.
    "operations_per_sample": 3 * counter.get_total_flops(),
    "operations_per_second": 2 * side**3 * 10 / seconds_of(10),
}
print(json.dumps(result), flush=True)
