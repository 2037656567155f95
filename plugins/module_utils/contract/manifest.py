# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The manifest of a staged data set: its parts, and the links to it.

Anybody who may write to the bucket may have changed it, so all of it is checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from . import schema
from .datasets import DATASETS, LINKS, DatasetFile
from .errors import UserError
from .identifiers import DATASET_NAME
from .schema import Check, InvalidValue, matching

FILE = "manifest.json"
MAX_BYTES = 8 << 20
MAX_PART_BYTES = 50 << 40
"""S3 keeps no larger objects."""
KINDS = ("zip", "tar", "tar.gz", "file")


def read(content: bytes, place: str) -> dict[str, Any]:
    """Return the manifest. Raise UserError if a path leads out of the data set, or a value is malformed."""
    record = json.loads(content)
    try:
        manifest = schema.validate_part(record, FIELDS, f"{place}/{FILE}")
    except UserError as refusal:
        raise UserError(
            f"{refusal} stage.yml did not write this: remove {place}/{FILE}, and stage the set again."
        ) from None
    names = [part["name"] for part in manifest["parts"]]
    if len(names) > len(set(names)):
        raise UserError(f"{place}/{FILE} names a part twice: remove {place}/{FILE}, and stage the set again.")
    return manifest


def build(
    name: str, parts: Sequence[DatasetFile], contents: Mapping[str, tuple[int, str]], links: Mapping[str, str]
) -> dict[str, Any]:
    """Return the manifest of a data set. `contents`: the size and SHA-256 of each part by its name."""
    records = [
        {
            "name": part.name,
            "kind": part.kind,
            "size": contents[part.name][0],
            "sha256": contents[part.name][1],
            "to": part.to,
            "strip": part.strip,
        }
        for part in parts
    ]
    version = hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest()[:16]
    return {"schema": schema.VERSION, "name": name, "version": version, "parts": records, "links": dict(links)}


def digest(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest, by which the operator's side names it to the nodes."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def check_named(manifest: Mapping[str, Any], name: str, place: str, is_checked: bool) -> None:
    """Raise UserError if the manifest is not that of the named data set, or has other checksums than are published.

    `is_checked`: whether it is the one that the operator's side has checked. No checksum is published of the one
    archive that may replace all parts, so nothing else shows what that archive is.
    """
    known = DATASETS.get(name)
    if not known:
        return
    contents = {part["name"]: (part["size"], part["sha256"]) for part in manifest["parts"]}
    forms = [known.parts, (known.archive,)] if known.archive and is_checked else [known.parts]
    (parts,) = [form for form in forms if {part.name for part in form} == contents.keys()] or [()]
    published = all(contents[part.name][1] == part.sha256 for part in parts if part.sha256)
    if not parts or not published or manifest != build(name, parts, contents, known.links):
        raise UserError(
            f"{place}/{FILE} is not the list of {name} with the published checksums, so nothing of it is used: others "
            f"may write there. Replace it. Example: ansible-playbook deeplearning.aws.stage -e dataset={name} -e "
            "stage_replace=true"
        )


def relative_path(value: Any) -> str:
    """Raise InvalidValue for a path that leads out of the data set. Its own folder is an empty path or a dot."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > 4096:
        raise InvalidValue("a relative path")
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts:
        raise InvalidValue("a path inside the set")
    return value


def file_name(value: Any) -> str:
    name = relative_path(value)
    if not 0 < len(name.encode()) <= 255 or "/" in name or name == ".":
        raise InvalidValue("a file's name")
    return name


links = schema.map_of(schema.one_of(*LINKS), relative_path)
PART: dict[str, Check] = {
    "name": file_name,
    "kind": schema.one_of(*KINDS),
    "size": schema.between(0, MAX_PART_BYTES),
    "sha256": schema.sha256,
    "to": relative_path,
    "strip": schema.or_empty(file_name),
}
FIELDS: dict[str, Check] = {
    "schema": schema.one_of(schema.VERSION),
    "name": matching(DATASET_NAME, "a data set's name"),
    "version": matching(r"[0-9a-f]{16}", "16 hexadecimal digits"),
    "parts": schema.list_of(schema.part(PART, "a part"), 1),
    "links": links,
}
