"""Train a residual network on random images for some steps, and print the samples a second.

Arguments: batch size, width, steps.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as group
from cifar10_pytorch import BasicBlock
from torch import nn

batch, width, steps = map(int, sys.argv[1:])
on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
group.init_process_group("nccl" if on_gpu else "gloo")
torch.manual_seed(0)
blocks = [BasicBlock(width, width, 1) for _unused in range(4)]
last = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)
network = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), *blocks, *last).to(device))
optimizer = torch.optim.SGD(network.parameters(), 0.01)
images = torch.randn(batch, 3, 32, 32, device=device)
labels = torch.randint(10, (batch,), device=device)


def train(count: int) -> float:
    """Return the seconds that so many steps take."""
    started = time.monotonic()
    for _unused in range(count):
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
    # To copy a number waits for the GPU.
    loss.item()
    return time.monotonic() - started


train(max(1, steps // 5))
seconds = train(steps)
result = {"samples_per_second": batch * steps / seconds, "device": device.type, "world": group.get_world_size()}
print(json.dumps(result), flush=True)
# At Python's own end gloo's thread now and then aborts the process.
os._exit(0)
