"""deeplearning data stage|show|receive: what a playbook calls to have a data set on the nodes; people may too."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any

from deeplearning import Refusal
from deeplearning.config import read_config
from deeplearning.data import staging
from deeplearning.data.fetching import CHUNK
from deeplearning.run.identity import become

KEY = re.compile(r"[0-9a-f]{32}")


def main(argv: list[str]) -> int:
    asking = argparse.ArgumentParser(prog="deeplearning data", description="Data sets on the nodes.")
    asking.add_argument("verb", choices=["stage", "show", "receive"], help="JSON is printed, a line for each event")
    asking.add_argument("data", help="cifar10, mnist, generated, a folder, or s3://bucket/prefix")
    asking.add_argument("--from", dest="source", default="", help="an address, or a file of this node")
    asking.add_argument("--on", choices=["efs", "node"], default="efs")
    asking.add_argument("--key", default="", help="the MD5 of a file that is sent here, for show and receive")
    asking.add_argument("--at", type=int, default=0, help="the position in that file to receive from")
    asked = asking.parse_args(argv)
    if asked.key and not KEY.fullmatch(asked.key):
        raise Refusal(f"--key is {asked.key}: give the file's MD5.")
    wanted = staging.Wanted(asked.data, asked.source, asked.on == "node")
    config = read_config()
    become(config.user)
    efs_mount = config.efs_mount
    if asked.verb == "show":
        tell(staging.show(wanted, efs_mount, asked.key))
    elif asked.verb == "receive":
        chunks = iter(lambda: sys.stdin.buffer.read(CHUNK), b"")
        tell(staging.receive(wanted, efs_mount, asked.key, asked.at, chunks, tell))
    else:
        tell({"event": "end", **staging.stage(wanted, efs_mount, tell)})
    return 0


def tell(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)
