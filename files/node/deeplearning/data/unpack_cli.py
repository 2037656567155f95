"""deeplearning unpack: stage.yml calls it on the nodes to unpack a staged data set to the shared file system."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from deeplearning.config import read_config
from deeplearning.contract.errors import UserError
from deeplearning.contract.identifiers import is_dataset_name
from deeplearning.data.cli import report
from deeplearning.data.extract import Unpacking
from deeplearning.data.ranged_reader import Source
from deeplearning.identity import become

SHA256 = re.compile(r"[0-9a-f]{64}")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="deeplearning unpack", description="Data sets that stage.yml has staged.")
    parser.add_argument("verb", choices=["show", "share", "finish"], help="JSON is printed, a line each")
    parser.add_argument("name", help="the data set")
    parser.add_argument("--from", dest="source", required=True, help="s3://bucket/prefix, or a folder")
    parser.add_argument("--sha256", required=True, help="that of the manifest, as stage.yml has checked it")
    parser.add_argument("--share", default="1/1", help="which share of how many, such as 2/4")
    options = parser.parse_args(argv)
    match = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", options.share)
    if not match or int(match[1]) > int(match[2]):
        raise UserError(f"--share is {options.share}: give which of how many. Example: --share 2/4")
    if not is_dataset_name(options.name):
        raise UserError(
            f"{options.name!r} cannot be a folder's name: give lower-case letters, digits, dots and hyphens."
        )
    if not SHA256.fullmatch(options.sha256):
        raise UserError(f"--sha256 is {options.sha256}: give the manifest's SHA-256.")
    config = read_config()
    become(config.user)
    source = Source(options.source, config.region, options.name, options.sha256)
    unpacking = Unpacking(Path(config.efs_mount, "data"), options.name, source)
    if options.verb == "show":
        report({"exists": unpacking.is_unpacked()})
    elif options.verb == "share":
        report({"event": "end", **unpacking.unpack(int(match[1]) - 1, int(match[2]), report)})
    else:
        report(unpacking.finish())
