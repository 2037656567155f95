# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check where `destroy` looks: it must not report that a cluster is gone while the cluster runs somewhere else.

`destroy` does not change the files that record the place. So a second `destroy` in the recorded place succeeds, and
one in another place is refused until the operator confirms the place (`destroy=red@eu-west-1`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...module_utils.aws.client import Aws
from ...module_utils.contract.errors import UserError
from ..members.recorded_place import RecordedPlace, credentials_of, other_place, recorded_places
from ..resources.region_scan import RegionScan, scan_regions
from ..resources.resources import ClusterResources
from ..views.summary import destroy_command

_MOST_COMMANDS = 3
"""A failure is shown with its first line and four more."""


@dataclass(frozen=True)
class Consent:
    """What the option `destroy` says: a cluster, and its region if the operator confirms the place."""

    cluster: str
    region: str = ""


@dataclass(frozen=True)
class Search:
    """What to look for, where the project's files are, and how commands select the same cluster."""

    cluster: str
    folder: Path
    summary_file: str
    keep: bool
    again: str
    """the options of this command line, without the region"""
    again_elsewhere: str
    """the same, without the credentials of this account"""
    scan_seconds: float
    """the limit of the search in other regions"""


def read_consent(text: str) -> Consent:
    cluster, _at, region = text.partition("@")
    return Consent(cluster, region)


def refuse_other_region(aws: Aws, text: str, again: str) -> None:
    """Raise UserError if the operator confirms another region than the one of this playbook.

    `again`: the options of this command line, without the region.
    """
    consent = read_consent(text)
    if "@" not in text or consent.region == aws.region:
        return
    this = destroy_command(f"{consent.cluster}@{aws.region}", f"{again} -e cluster_region={aws.region}")
    lines = [
        f"destroy is {text}, and the region of this playbook is {aws.region} (account {aws.account}): nothing was "
        "removed."
    ]
    if consent.region:
        other = destroy_command(shlex.quote(text), f"{again} -e cluster_region={shlex.quote(consent.region)}")
        lines.append(f"To remove {consent.cluster} in {consent.region}: {other}")
    lines.append(f"To remove {consent.cluster} in {aws.region}: {this}")
    raise UserError("\n".join(lines))


def check_place(aws: Aws, resources: ClusterResources, consent: Consent, search: Search) -> list[str]:
    """Return lines for a cluster of which nothing is left here. Raise UserError if it is in another place, or may be.

    `resources`: what exists here although there is nothing to delete, such as a file system that is kept.
    """
    other = other_place(aws, search.folder, search.cluster, search.summary_file)
    if consent.region:
        return [_not_searched(other)] if other else []
    if other:
        raise UserError(_elsewhere_by_files(aws, other, search))
    is_recorded = bool(recorded_places(aws, search.folder, search.cluster, search.summary_file))
    has_own = any(resource.ours for resource in resources.current)
    if is_recorded or has_own:
        return []
    scan = scan_regions(aws, search.cluster, search.keep, search.scan_seconds)
    if scan.clusters:
        raise UserError(_elsewhere_by_scan(aws, scan, search))
    return scan_lines(scan)


def _not_searched(other: RecordedPlace) -> str:
    return f"{other.file} records the cluster in {other.name}, where nothing was looked for."


def scan_lines(scan: RegionScan) -> list[str]:
    """Return lines about a scan that has not found the cluster."""
    lines = []
    if scan.searched:
        lines.append(f"Other regions of the account do not have it either: {len(scan.searched)} were searched.")
    unsearched = scan.unsearched_line()
    if unsearched:
        lines.append(unsearched)
    return lines


def _elsewhere_by_files(aws: Aws, other: RecordedPlace, search: Search) -> str:
    if other.is_of_other_account(aws):
        command = destroy_command(search.cluster, f"{search.again_elsewhere} -e cluster_region={other.region}")
        advice = f"{credentials_of(other.account)}, type: {command}"
    else:
        advice = f"To remove it there: {_command_in(other.region, search)}"
    return "\n".join(
        [
            f"There is no cluster {search.cluster} in {aws.place}, but {other.file} records it in {other.name}: "
            "nothing was removed.",
            advice,
            _confirmation(aws, search),
        ]
    )


def _elsewhere_by_scan(aws: Aws, scan: RegionScan, search: Search) -> str:
    places = [f"{cluster.region} ({', '.join(cluster.resources)})" for cluster in scan.clusters]
    commands = [_command_in(cluster.region, search) for cluster in scan.clusters[:_MOST_COMMANDS]]
    return "\n".join(
        [
            f"There is no cluster {search.cluster} in {aws.place}, but the account has one in {_joined(places)}: "
            f"nothing was removed. {scan.unsearched_line()}".rstrip(),
            *(f"To remove it there: {command}" for command in commands),
            _confirmation(aws, search),
        ]
    )


def _joined(places: Sequence[str]) -> str:
    return " and in ".join(places)


def _command_in(region: str, search: Search) -> str:
    return destroy_command(search.cluster, f"{search.again} -e cluster_region={region}")


def _confirmation(aws: Aws, search: Search) -> str:
    command = destroy_command(f"{search.cluster}@{aws.region}", f"{search.again} -e cluster_region={aws.region}")
    return f"If {aws.region} is the right region: {command}"
