"""The list of a staged set's parts. Whoever may write to the bucket may have changed it, so all of it is checked."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from deeplearning import Refusal, records
from deeplearning.records import Check, Wrong, matching

FILE = "manifest.json"
LONGEST = 8 << 20
LARGEST_PART = 50 << 40
"""S3 keeps no larger objects."""
KINDS = ("zip", "tar", "tar.gz", "file")
LINKS = ("cifar10_data", *(f"data/{name}" for name in ("train2017", "val2017", "annotations", "pretrained-models")))
"""Where old scripts look, below the mount point. No other link is made."""


def read(content: bytes, place: str) -> dict[str, Any]:
    """The manifest, if every path in it stays inside the set and everything else has its form."""
    record = json.loads(content)
    try:
        manifest = records.checked_part(record, FIELDS, f"{place}/{FILE}")
    except Refusal as refusal:
        raise Refusal(
            f"{refusal} stage.yml did not write this: remove {place}/{FILE}, and stage the set again."
        ) from None
    names = [part["name"] for part in manifest["parts"]]
    if len(names) > len(set(names)):
        raise Refusal(f"{place}/{FILE} names a part twice: remove {place}/{FILE}, and stage the set again.")
    return manifest


def a_path_inside(value: Any) -> None:
    """Relative, and on no way up. The set's own folder is an empty path or a dot."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > 4096:
        raise Wrong("a relative path")
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts:
        raise Wrong("a path inside the set")


def a_name(value: Any) -> None:
    a_path_inside(value)
    if not 0 < len(value.encode()) <= 255 or "/" in value or value == ".":
        raise Wrong("a file's name")


def a_name_or_nothing(value: Any) -> None:
    if value != "":
        a_name(value)


def a_part(value: Any) -> None:
    records.checked_part(value, PART, "a part of the manifest")


def links(value: Any) -> None:
    if not isinstance(value, dict):
        raise Wrong("a map")
    for name, target in value.items():
        records.one_of(*LINKS)(name)
        a_path_inside(target)


PART: dict[str, Check] = {
    "name": a_name,
    "kind": records.one_of(*KINDS),
    "size": records.between(0, LARGEST_PART),
    "sha256": matching(r"[0-9a-f]{64}", "a SHA-256 in hexadecimal"),
    "to": a_path_inside,
    "strip": a_name_or_nothing,
}
FIELDS: dict[str, Check] = {
    "schema": records.one_of(records.SCHEMA),
    "name": matching(r"[a-z0-9][a-z0-9._-]{0,47}", "a data set's name"),
    "version": matching(r"[0-9a-f]{16}", "16 hexadecimal digits"),
    "parts": records.a_list(a_part, 1),
    "links": links,
}
