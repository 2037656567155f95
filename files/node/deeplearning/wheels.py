"""`deeplearning wheels`: copy the wheels of Horovod that the cluster has built before from its bucket to this node.

The node's role can read them and not write them, so their checksums can be trusted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import sys

from deeplearning.aws import AwsClient
from deeplearning.config import read_config
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError

PREFIX = "wheels/"
NAME = re.compile(r"horovod-[\w.+-]+/horovod-[\w.+-]+\.whl")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deeplearning wheels", description=__doc__)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    action = actions.add_parser("pull", help="copy the wheels for this machine's architecture, and print their SHA-256")
    action.add_argument("folder", nargs="?", default=paths.WHEELS)
    arguments = parser.parse_args(argv)
    config = read_config()
    print(json.dumps({"wheels": pull(AwsClient(config.region), config.bucket, arguments.folder)}))
    return 0


def pull(aws: AwsClient, bucket: str, folder: str) -> dict[str, str]:
    """Return the checksums of the wheels by name. One that is not what was stored, or was stored without a checksum, is
    left out."""
    checksums = {}
    for item in aws.pages("s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=PREFIX):
        name = str(item["Key"]).removeprefix(PREFIX)
        if not (NAME.fullmatch(name) and name.split("/")[0].endswith(f"_{platform.machine()}")):
            continue
        try:
            sha256 = aws.call("s3", "head_object", Bucket=bucket, Key=item["Key"])["Metadata"].get("sha256", "")
            content = aws.read_object(bucket, item["Key"])
        except UserError as error:
            print(error, file=sys.stderr)
            continue
        if hashlib.sha256(content).hexdigest() == sha256:
            os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
            atomic_file.replace(f"{folder}/{name}", content)
            checksums[name] = sha256
    return checksums
