# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The settings that a cluster was made with. What is not given later stays as it is.

site.yml and emr.yml record them in the cluster's bucket, at a place where only operators can write.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.contract import schema
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.names import Names
from ..members.recorded_place import read_summary, summary_path
from .settings import NOT_RECORDED, REMOVED, TABLE

OBJECT = "settings.json"
LARGEST = 1 << 20
_MISSING = ("NoSuchBucket", "NoSuchKey", "404")


def read(aws: Aws, cluster: str) -> dict[str, Any]:
    """Return the recorded settings; none for a new cluster. The values are validated with those that are given."""
    bucket = Names(cluster, aws.account, aws.region).bucket
    try:
        content = aws.content(bucket, OBJECT, aws.account, LARGEST)
    except AwsError as error:
        if error.code in _MISSING:
            return {}
        if error.denied:
            raise UserError(
                f"The bucket {bucket} belongs to another account, or {error.action} on its {OBJECT} is not allowed: "
                "name another cluster, or ask for this permission (see docs/iam.md)."
            ) from error
        raise
    try:
        return dict(schema.parse(content, LARGEST, _FIELDS, f"s3://{bucket}/{OBJECT}")["settings"])
    except UserError as error:
        raise UserError(
            f"s3://{bucket}/{OBJECT} has the settings that {cluster} was made with, and is damaged ({error}): remove "
            "it, and run deeplearning.aws.plan, which says what to give. Give all other settings that differ from the "
            "defaults too."
        ) from None


def private_key(folder: Path, cluster: str) -> dict[str, Any]:
    """Return the setting of the private key that this machine used for the cluster, by its summary."""
    used = read_summary(summary_path(folder, cluster), cluster, "private_key_file")
    return {"cluster_private_key_file": used} if Path(used).is_file() else {}


def to_record(recorded: Mapping[str, Any], specified: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object's content. `specified`: what is given now."""
    settings = {name: value for name, value in {**recorded, **specified}.items() if name not in NOT_RECORDED}
    return {"schema": schema.VERSION, "settings": dict(sorted(settings.items()))}


def _settings(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise schema.InvalidValue("settings of this version")
    settings = {name: setting for name, setting in value.items() if name not in REMOVED}
    if any(name not in TABLE or name in NOT_RECORDED for name in settings):
        raise schema.InvalidValue("settings of this version")
    return settings


_FIELDS = {"settings": _settings}
