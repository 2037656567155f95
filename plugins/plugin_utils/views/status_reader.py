# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read what status.yml shows in addition to a cluster's resources: from AWS, and from the master."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ...module_utils.aws.client import Aws
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.hosts import MASTER_ALIAS
from ..members.hosts import SshAccess
from ..resources.resources import ClusterResources
from ..runs import node_program
from ..watch.capacity import NodeSetup
from ..watch.group_history import GroupHistory
from ..watch.missing_machines import reports_of
from .costs import TERMINATED
from .status import Observations, TemplateVersion

MASTER_SECONDS = 30.0
"""How long the master may take to answer."""
REPLACED_HOURS = 24
"""Machines that were replaced before that are not named."""

_BUNDLE = re.compile(r'"sha256": "([0-9a-f]{64})"')
"""In the user data that fetches the bundle."""
_FAILED = re.compile(
    r"taken out of service in response to (an? [^.]*(?:health[ -]check|status check|[Ii]nterruption)[^.]*)\."
)
"""A machine that failed, or that Spot has taken back; not one that was removed on request."""


def observe(
    aws: Aws, owned: ClusterResources, history: GroupHistory, summary: Mapping[str, Any], access: SshAccess
) -> Observations:
    """Return what is known about the machines of a cluster. `summary`: its description."""
    with_template = {template.name for template in owned.of_kind("launch_template")}
    with_template &= {group.name for group in owned.groups}
    templates = {name: versions_of(history.template_versions(name)) for name in with_template}
    images = {versions[max(versions)].image for versions in templates.values()} - {""}
    since = datetime.now(UTC) - timedelta(hours=REPLACED_HOURS)
    answer, silence = _ask_master(summary["master"], access)
    return Observations(
        templates=templates,
        image_dates=_image_dates(aws, images),
        reports=_reports(aws, owned),
        replacements=[
            item for group in owned.groups for item in replacements_of(history.activities(group.name), since)
        ],
        efs_bytes=_file_system_bytes(aws, summary["efs"]["file_system_id"]),
        answer=answer,
        silence=silence,
    )


def versions_of(listed: Sequence[Mapping[str, Any]]) -> dict[int, TemplateVersion]:
    versions = {}
    for item in listed:
        data = dict(item["LaunchTemplateData"])
        bundle = _BUNDLE.search(_decoded(data.pop("UserData", "")))
        number = int(item["VersionNumber"])
        versions[number] = TemplateVersion(number, data, bundle[1] if bundle else "")
    return versions


def _decoded(user_data: str) -> str:
    try:
        return base64.b64decode(user_data, validate=True).decode(errors="replace")
    except ValueError:
        return ""


def _image_dates(aws: Aws, ids: set[str]) -> dict[str, str]:
    """Return when each image was made. One that is not available any more is missing."""
    if not ids:
        return {}
    filters = [{"Name": "image-id", "Values": sorted(ids)}]
    listed = aws.pages("ec2", "describe_images", "Images", Filters=filters)
    return {str(image["ImageId"]): str(image.get("CreationDate") or "") for image in listed}


def _reports(aws: Aws, owned: ClusterResources) -> dict[str, NodeSetup]:
    machines = {group.name: list(group.facts["machines"]) for group in owned.groups}
    machines |= {cluster.id: list(cluster.facts["in_service"]) for cluster in owned.of_kind("emr_cluster")}
    reports = reports_of(aws, owned) if machines else None
    return reports.read(machines) if reports else {}


def replacements_of(activities: Sequence[Mapping[str, Any]], since: datetime) -> list[dict[str, str]]:
    """Return the machines that Auto Scaling has replaced lately, as they failed."""
    replaced = []
    for activity in activities:
        machine = TERMINATED.match(str(activity.get("Description") or ""))
        why = _FAILED.search(str(activity.get("Cause") or ""))
        if machine and why and activity["StartTime"] >= since:
            at = f"{activity['StartTime']:%Y-%m-%d %H:%M}"
            replaced.append({"subject": machine[1], "at": at, "reason": why[1]})
    return replaced


def _file_system_bytes(aws: Aws, file_system: str) -> int | None:
    if not file_system:
        return None
    answer = aws.find("efs", "describe_file_systems", ("FileSystemNotFound",), FileSystemId=file_system)
    return next((int(item["SizeInBytes"]["Value"]) for item in answer.get("FileSystems", ())), None)


def _ask_master(master: Mapping[str, str], access: SshAccess) -> tuple[dict[str, Any] | None, str]:
    """Return the master's answer, or None and a sentence that says why there is none."""
    if not master:
        return None, "There is no master."
    if master["instance_id"] not in access.known:
        return None, f"The host keys of {master['instance_id']} are not known here yet."
    try:
        way = node_program.Way.of_config(access.config, MASTER_ALIAS)
        return node_program.ask(way, ["status"], seconds=MASTER_SECONDS), ""
    except UserError as error:
        # What ssh itself prints says enough.
        return None, str(error).removeprefix(f"The connection to {MASTER_ALIAS} was lost: ")
