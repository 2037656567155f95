"""deeplearning unpack: what stage.yml calls on the nodes to have a staged data set on the shared file system."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

from deeplearning import Refusal
from deeplearning.config import read_config
from deeplearning.run.identity import become
from deeplearning.unpacking.placing import Place, finish, show, unpack
from deeplearning.unpacking.reading import Source


def main(argv: list[str]) -> int:
    asking = argparse.ArgumentParser(prog="deeplearning unpack", description="Data sets that stage.yml has staged.")
    asking.add_argument("verb", choices=["show", "share", "finish"], help="JSON is printed, a line each")
    asking.add_argument("name", help="the data set")
    asking.add_argument("--from", dest="source", required=True, help="s3://bucket/prefix, or a folder")
    asking.add_argument("--share", default="1/1", help="which share of how many, such as 2/4")
    asked = asking.parse_args(argv)
    found = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", asked.share)
    if not found or int(found[1]) > int(found[2]):
        raise Refusal(f"--share is {asked.share}: give which of how many. Example: --share 2/4")
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,47}", asked.name):
        raise Refusal(f"{asked.name!r} cannot be a folder's name: give lower-case letters, digits, dots and hyphens.")
    config = read_config()
    become(config.user)
    source, place = Source(asked.source, config.region), Place(config.efs_mount, asked.name)
    share, shares = int(found[1]) - 1, int(found[2])
    if asked.verb == "show":
        answer = show(place, source.manifest())
    elif asked.verb == "share":
        answer = {"event": "end", **unpack(place, source, share, shares, tell)}
    else:
        answer = finish(place, source.manifest(), shares)
    tell(answer)
    return 0


def tell(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)
