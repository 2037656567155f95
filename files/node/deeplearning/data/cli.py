"""deeplearning data stage|show|receive: bring a data set to the nodes. Playbooks call it; people may too."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from deeplearning.config import read_config
from deeplearning.contract.download import CHUNK
from deeplearning.contract.errors import UserError
from deeplearning.data import local_disk, staging
from deeplearning.identity import become

KEY = re.compile(r"[0-9a-f]{32}")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="deeplearning data", description="Data sets on the nodes.")
    parser.add_argument("verb", choices=["stage", "show", "receive"], help="JSON is printed, a line for each event")
    parser.add_argument("data", help="cifar10, mnist, generated, a folder's name or path, or s3://bucket/prefix")
    parser.add_argument("--from", dest="source", default="", help="a URL, or a file of this node")
    parser.add_argument("--on", choices=["efs", "node", "instance_store"], default="efs")
    parser.add_argument("--bucket", default="", help="s3://bucket/prefix of the data sets that stage.yml has staged")
    parser.add_argument("--key", default="", help="the MD5 of a file that is sent here, for show and receive")
    parser.add_argument("--at", type=int, default=0, help="the position in that file to receive from")
    options = parser.parse_args(argv)
    if options.key and not KEY.fullmatch(options.key):
        raise UserError(f"--key is {options.key}: give the file's MD5.")
    config = read_config()
    request = staging.StagingRequest(
        options.data, Path(config.efs_mount), options.source, options.on != "efs", options.bucket, config.region
    )
    become(config.user)
    if options.on == "instance_store":
        local_disk.require_instance_store()
    if options.verb == "show":
        report(staging.show(request, options.key))
    elif options.verb == "receive":
        chunks = iter(lambda: sys.stdin.buffer.read(CHUNK), b"")
        report(staging.receive(request, options.key, options.at, chunks, report))
    else:
        report({"event": "end", **staging.stage(request, report)})


def report(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)
