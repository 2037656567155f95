"""Sum over all ranks again and again, and print the number of each sum.

Argument: how many seconds a sum may take. Then the rank that waits for it ends.
"""

import os
import sys

# NCCL refuses two ranks of one host on a GPU.
os.environ["NCCL_HOSTID"] = f"rank{os.environ['RANK']}"

import time
from datetime import timedelta

import torch
import torch.distributed as group

on_gpu = torch.cuda.is_available()
group.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(seconds=float(sys.argv[1])))
values = torch.ones(1000, device="cuda" if on_gpu else "cpu")
number = 0
while True:
    number += 1
    group.all_reduce(values)
    # To copy a number waits for the sum.
    values[0].item()
    print(number, flush=True)
    time.sleep(0.05)
