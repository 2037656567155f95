"""Run the preflight, then train a small network with DDP, and print what this rank has at the end.

Arguments: the preflight's path, and the backend whose flight recorder is read.
"""

import json
import os
import runpy
import sys

# NCCL refuses two ranks of one host on a GPU. The preflight, too, has to count each as a node.
os.environ["NCCL_HOSTID"] = f"rank{os.environ['RANK']}"
os.environ["GROUP_RANK"] = os.environ["RANK"]

import torch
import torch.distributed as group
from torch._C import _distributed_c10d

preflight, backend = sys.argv[1:]
runpy.run_path(preflight, run_name="__main__")

device = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")
torch.manual_seed(0)
network = torch.nn.Linear(64, 10).to(device)
exchanging = torch.nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.SGD(network.parameters(), 0.1)
torch.manual_seed(1 + group.get_rank())
for _unused in range(5):
    optimizer.zero_grad()
    exchanging(torch.randn(32, 64, device=device)).square().mean().backward()
    optimizer.step()

weights = torch.cat([each.detach().flatten() for each in network.parameters()])
largest, smallest = weights.clone(), weights.clone()
group.all_reduce(largest, group.ReduceOp.MAX)
group.all_reduce(smallest, group.ReduceOp.MIN)
dump = _distributed_c10d._dump_nccl_trace_json if backend == "nccl" else _distributed_c10d._dump_fr_trace_json
entries = json.loads(dump()).get("entries", [])
recorded = sum("all_reduce" in entry["profiling_name"] for entry in entries)
print(json.dumps({"equal": bool(torch.equal(largest, smallest)), "recorded": recorded}), flush=True)
