# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Find a cluster of the same name in another region, whose files in the project this one would replace."""

from __future__ import annotations

import json
from pathlib import Path

from ...module_utils.aws.client import Aws, AwsError
from ..resources.resource_reader import ResourceReader
from ..resources.resources import leftovers
from .host_keys import OF_CLUSTER, ssh_files


def other_regions(folder: Path, cluster: str, region: str) -> set[str]:
    """Return the other regions that the cluster's summary and its configuration of ssh in the folder are about."""
    return {read_summary(folder, cluster, "region"), _of_ssh(ssh_files(folder, cluster)[1], cluster)} - {region, ""}


def read_summary(folder: Path, cluster: str, key: str) -> str:
    """Return a text in the summary of a cluster that this machine has; empty if there is none."""
    try:
        return str(json.loads(_summary(folder, cluster).read_bytes())[key])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _of_ssh(file: Path, cluster: str) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    begin = f"{OF_CLUSTER}{cluster} in "
    return text.removeprefix(begin).partition(",")[0] if text.startswith(begin) else ""


def refusal(aws: Aws, folder: Path, cluster: str, others: set[str], again: str) -> str:
    """Return a sentence if the cluster exists in one of the other regions too, or if that is unknown.

    `again`: the options of this command line, which the printed command needs too.
    """
    for region in sorted(others & set(aws.regions())):
        files = f"{folder} has files of the cluster {cluster} in {region}"
        try:
            owned = ResourceReader(aws.in_region(region), cluster).read()
        except AwsError as error:
            return (
                f"{files}, and whether it still exists is unknown: {error} If it does not, delete "
                f"{_summary(folder, cluster)} and {ssh_files(folder, cluster)[1]}."
            )
        if any(resource.ours for resource in leftovers(owned, keep=True)):
            return (
                f"{files}, which exists: {cluster} in {aws.region} would replace them, and ssh would reach the other "
                "cluster. Give this one another name (cluster_name), or another folder in its inventory file. Example: "
                f"folder: .deeplearning/{aws.region}. To remove the other: ansible-playbook deeplearning.aws.destroy "
                f"-e destroy={cluster}{again} -e cluster_name={cluster} -e cluster_region={region}"
            )
    return ""


def _summary(folder: Path, cluster: str) -> Path:
    return folder / f"{cluster}.json"
