# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read the region and the account that the files of a project record for a cluster.

The files are the summary, which has both, and ssh's configuration, which has the region. `destroy` leaves them as they
are, so they record where a cluster was also after its end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...module_utils import messages
from ...module_utils.aws.client import Aws
from .host_keys import OF_CLUSTER, ssh_files

DEFAULT_FOLDER = ".deeplearning"
_ACCOUNT = re.compile(r"\d{12}\Z")


@dataclass(frozen=True)
class RecordedPlace:
    """The region and the account that a file records for a cluster."""

    region: str
    file: Path
    account: str = ""
    """empty if the file does not record it"""

    @property
    def name(self) -> str:
        return messages.place(self.region, self.account) if self.account else self.region

    def is_of_other_account(self, aws: Aws) -> bool:
        return bool(self.account) and self.account != aws.account

    def is_elsewhere(self, aws: Aws) -> bool:
        """Return whether these calls go to another region or account."""
        return self.region != aws.region or self.is_of_other_account(aws)


def project_folder(variables: Mapping[str, Any]) -> Path:
    """Return the folder of the clusters' files: the inventory's, or the default one without an inventory of ours."""
    return Path(str(variables.get("deeplearning_folder", "")) or DEFAULT_FOLDER)


def summary_path(folder: Path, cluster: str, summary_file: str = "") -> Path:
    """Return the file of the summary. `summary_file`: the setting of this name."""
    return Path(summary_file).expanduser() if summary_file else folder / f"{cluster}.json"


def read_summary(file: Path, cluster: str, key: str) -> str:
    """Return a text in the summary of the cluster that this machine has; empty if there is none."""
    try:
        summary = json.loads(file.read_bytes())
        if summary.get("cluster", cluster) != cluster:
            return ""
        return str(summary[key])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def recorded_places(aws: Aws, folder: Path, cluster: str, summary_file: str = "") -> list[RecordedPlace]:
    """Return the place in the summary, then the one in ssh's configuration if its region is another one.

    What a file says counts only if the SDK knows the region.
    """
    summary = summary_path(folder, cluster, summary_file)
    account = read_summary(summary, cluster, "account")
    of_summary = RecordedPlace(
        read_summary(summary, cluster, "region"), summary, account if _ACCOUNT.match(account) else ""
    )
    configuration = ssh_files(folder, cluster)[1]
    of_ssh = RecordedPlace(_region_of_ssh(configuration, cluster), configuration)
    recorded = [of_summary]
    if of_ssh.region != of_summary.region:
        recorded.append(of_ssh)
    named = [place for place in recorded if place.region]
    if not named:
        return []
    known = set(aws.regions())
    return [place for place in named if place.region in known]


def other_place(aws: Aws, folder: Path, cluster: str, summary_file: str = "") -> RecordedPlace | None:
    """Return where the files record the cluster, if that is another region or account.

    The summary counts before ssh's configuration.
    """
    recorded = recorded_places(aws, folder, cluster, summary_file)
    if recorded and recorded[0].is_elsewhere(aws):
        return recorded[0]
    return None


def credentials_of(account: str) -> str:
    """Return the beginning of a sentence about which credentials to use."""
    return f"With credentials of the account {account} (AWS_PROFILE, or -e cluster_profile=NAME)"


def _region_of_ssh(file: Path, cluster: str) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    begin = f"{OF_CLUSTER}{cluster} in "
    if not text.startswith(begin):
        return ""
    return text.removeprefix(begin).partition(",")[0]
