# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Find a cluster of the same name in another region or account, by the files that the project has of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...module_utils.aws.client import Aws, AwsError
from ..resources.resource_reader import ResourceReader
from ..resources.resources import leftovers
from .host_keys import ssh_files
from .recorded_place import RecordedPlace, credentials_of, recorded_places, summary_path


@dataclass(frozen=True)
class Namesake:
    """A cluster in another region or account, which exists or may exist."""

    place: RecordedPlace
    unknown: str = ""
    """A sentence about why it cannot be read; empty if it exists."""
    other_account: bool = False
    """It is in another account, so it cannot be read with these credentials."""


@dataclass(frozen=True)
class ListCommand:
    """The command that lists a cluster, without its region."""

    here: str
    """with the credentials of this command line"""
    elsewhere: str
    """without them, for another account"""


def find_namesake(aws: Aws, folder: Path, cluster: str, summary_file: str = "") -> Namesake | None:
    """Return the cluster that the files are about, unless it is in this region and account, or is known to be gone."""
    recorded = recorded_places(aws, folder, cluster, summary_file)
    elsewhere = [place for place in recorded if place.is_elsewhere(aws)]
    for place in sorted(elsewhere, key=lambda place: place.region):
        other = _look_up(aws, cluster, place)
        if other:
            return other
    return None


def _look_up(aws: Aws, cluster: str, place: RecordedPlace) -> Namesake | None:
    if place.is_of_other_account(aws):
        return Namesake(place, other_account=True)
    try:
        resources = ResourceReader(aws.in_region(place.region), cluster).read()
    except AwsError as error:
        return Namesake(place, str(error))
    if any(resource.ours for resource in leftovers(resources, keep=True)):
        return Namesake(place)
    return None


def refusal(aws: Aws, folder: Path, cluster: str, again: str, summary_file: str = "") -> str:
    """Return a sentence if a playbook would replace the files of another cluster of this name.

    `again`: the options of this command line, which the printed command needs too.
    """
    other = find_namesake(aws, folder, cluster, summary_file)
    if other is None:
        return ""
    region = other.place.region
    files = f"{folder} has files of the cluster {cluster} in {region}"
    files_of_it = _files(folder, cluster, other.place)
    if other.other_account:
        return (
            f"{files}, account {other.place.account}. These credentials are for the account {aws.account}, so whether "
            f"it exists is unknown, and {cluster} in {aws.place} would replace its files. Use credentials of the "
            f"account {other.place.account} (AWS_PROFILE, or -e cluster_profile=NAME), or give this cluster another "
            f"folder in its inventory file. If the other cluster does not exist, delete {files_of_it}."
        )
    if other.unknown:
        return (
            f"{files}, and whether it still exists in the account {aws.account} is unknown: {other.unknown} If it does "
            f"not, delete {files_of_it}."
        )
    return (
        f"{files}, which exists: {cluster} in {aws.region} would replace them, and ssh would reach the other "
        f"cluster. Both are in the account {aws.account}. Give this one another name (cluster_name), or another folder "
        f"in its inventory file. Example: folder: .deeplearning/{aws.region}. To remove the other: ansible-playbook "
        f"deeplearning.aws.destroy -e destroy={cluster}{again} -e cluster_name={cluster} -e cluster_region={region}"
    )


def _files(folder: Path, cluster: str, place: RecordedPlace) -> str:
    paths = [summary_path(folder, cluster), ssh_files(folder, cluster)[1]]
    if place.file not in paths:
        paths[0] = place.file
    return " and ".join(str(path) for path in paths)


def absence_problem(aws: Aws, folder: Path, cluster: str, command: ListCommand, summary_file: str = "") -> str:
    """Return why it is wrong to say that the cluster does not exist: it is elsewhere, or may be. Otherwise empty."""
    other = find_namesake(aws, folder, cluster, summary_file)
    if other is None:
        return ""
    lines = [
        f"The cluster {cluster} has no resources in {aws.place}, but {other.place.file} records it in "
        f"{other.place.name}."
    ]
    region = f" -e cluster_region={other.place.region}"
    if other.other_account:
        lines.append(f"{credentials_of(other.place.account)}, type: {command.elsewhere}{region}")
        return "\n".join(lines)
    if other.unknown:
        lines.append(f"Whether it exists is unknown: {other.unknown}")
    lines.append(f"To list it: {command.here}{region}")
    return "\n".join(lines)
