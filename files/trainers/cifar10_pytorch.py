"""CIFAR-10 with PyTorch and its DistributedDataParallel.

By hand: torchrun --nproc-per-node 2 cifar10_pytorch.py --data-dir … --run-dir …
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import common
import torch
import torch.distributed
import visible_gpus
from torch import nn


def lenet(colours: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(colours, 20, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(7),
        nn.Flatten(),
        nn.Linear(50 * 7 * 7, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


class BasicBlock(nn.Module):
    """Normalize groups and not batches, whose statistics the ranks would have to agree on."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False),
            nn.GroupNorm(8, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.GroupNorm(8, width),
        )
        self.shortcut = nn.Identity() if before == width else nn.Conv2d(before, width, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def resnet(colours: int, layers: int) -> nn.Module:
    widths = [width for width in (16, 32, 64) for _unused in range((layers - 2) // 6)]
    blocks = [
        BasicBlock(before, width, 1 if before == width else 2)
        for before, width in zip([16, *widths], widths, strict=False)
    ]
    first = nn.Conv2d(colours, 16, 3, padding=1, bias=False), nn.GroupNorm(8, 16), nn.ReLU()
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class PyTorch(common.Learner):
    ending = "pt"

    def __init__(self, options, colours: int) -> None:
        torch.manual_seed(options.seed)
        self.device = torch.device("cpu")
        visible_gpus.require("torch", lambda: torch.cuda.device_count() if torch.cuda.is_available() else 0)
        if torch.cuda.is_available():
            local = int(os.environ.get("LOCAL_RANK", 0))
            self.device = torch.device("cuda", local % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        network = lenet(colours) if options.network == "lenet" else resnet(colours, options.num_layers)
        self.network = self.exchanging = network.to(self.device)
        weights, decay = self.network.parameters(), options.weight_decay
        if options.optimizer == "adam":
            self.optimizer = torch.optim.Adam(weights, options.lr, weight_decay=decay)
        else:
            self.optimizer = torch.optim.SGD(weights, options.lr, options.momentum, weight_decay=decay)
        if options.mixed_precision and self.device.type == "cuda":
            visible_gpus.require_bfloat16(torch.cuda.get_device_capability(self.device))
        # What the steps since the last line add up to. To read it, the processor waits for the GPU.
        self.samples, self.sums = 0, torch.zeros(2, dtype=torch.float64, device=self.device)
        # bfloat16 has the range of 32 bits, so that losses need no scaling.
        self.precision = torch.autocast(self.device.type, torch.bfloat16, enabled=options.mixed_precision)

    def set_learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def step(self, images, labels) -> common.Result:
        images, labels = self._tensors(images, labels)
        self.optimizer.zero_grad()
        with self.precision:
            scores = self.exchanging(images).float()
        loss = nn.functional.cross_entropy(scores, labels)
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            self.sums += torch.stack([loss.double() * len(labels), (scores.argmax(1) == labels).sum()])
        self.samples += len(labels)
        return 0, 0.0, 0

    def read(self) -> common.Result:
        loss, right = self.sums.tolist()
        samples, self.samples = self.samples, 0
        self.sums.zero_()
        return samples, loss, int(right)

    @torch.no_grad()
    def right(self, images, labels) -> int:
        images, labels = self._tensors(images, labels)
        with self.precision:
            return int((self.network(images).argmax(1) == labels).sum())

    def _tensors(self, images, labels) -> tuple[torch.Tensor, torch.Tensor]:
        """Send a batch as bytes, which the device scales. It does so while the processor goes on."""
        batch = torch.from_numpy(images), torch.from_numpy(labels)
        if self.device.type == "cuda":
            batch = tuple(tensor.pin_memory().to(self.device, non_blocking=True) for tensor in batch)
        return (batch[0].float() / 127.5 - 1).permute(0, 3, 1, 2).contiguous(), batch[1]

    def save(self, path: Path) -> None:
        torch.save({"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}, path)

    def export(self, folder: Path) -> None:
        with common.replacing(folder / "model.pt") as path:
            torch.save(self.network.state_dict(), path)

    def load(self, path: Path) -> None:
        saved = torch.load(path, map_location=self.device, weights_only=True)
        self.network.load_state_dict(saved["network"])
        self.optimizer.load_state_dict(saved["optimizer"])


class DataParallel(PyTorch):
    """Each rank has the network; their gradients are averaged while they are computed."""

    def __init__(self, options, colours: int) -> None:
        super().__init__(options, colours)
        torch.distributed.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if not options.no_exchange:
            self.exchanging = nn.parallel.DistributedDataParallel(self.network)

    def total(self, number: float) -> float:
        summed = torch.tensor(number, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(summed)
        return summed.item()


def main() -> None:
    options = common.arguments(__doc__, ("ddp",), "ddp")
    data = common.load(options.data_dir)
    colours = data[0].images.shape[-1]
    kind = DataParallel if int(os.environ.get("WORLD_SIZE", 1)) > 1 else PyTorch
    common.run(kind(options, colours), options, data)
    if torch.distributed.is_initialized():
        # At Python's own end a rank may wait for gloo's thread, which waits for Python's lock: for ever, now and then.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
