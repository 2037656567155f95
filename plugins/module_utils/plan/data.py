# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check that a data set fits on the nodes' own disks, for train.yml with data_on."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..aws.client import Aws, AwsError
from ..contract.datasets import DATASETS
from ..contract.manifest import FILE
from ..contract.names import Names
from . import images
from .facts import AccountFacts, Cluster, type_names
from .findings import Finding, note, setting_problem

FRAMEWORKS_GIB = 20
"""Space for the frameworks' environments beside the image."""


def size_gib(aws: Aws, name: str) -> float | None:
    """Return about how much space a data set takes on a disk; None if there is none of that name."""
    if name in DATASETS:
        return DATASETS[name].gib
    bucket = Names("", aws.account, aws.region).data_bucket
    try:
        parts = json.loads(aws.content(bucket, f"{name}/{FILE}", aws.account))["parts"]
        return sum(int(part["size"]) for part in parts) / 2**30
    except (AwsError, ValueError, LookupError, TypeError):
        return None


def check(facts: AccountFacts, cluster: Cluster, name: str, size: float | None, data_on: str) -> Iterator[Finding]:
    if size is None:
        yield Finding(
            f"dataset is {name}: it is neither {', '.join(DATASETS)} nor staged in "
            f"{Names('', facts.account, facts.region).data_bucket}. Example: -e dataset=coco2017"
        )
        return
    image = sum(images.root_gib(described) for described in facts.image.described or ())
    room = cluster["root_volume_gib"] - image - FRAMEWORKS_GIB
    for kind in (facts.types or {}).values():
        setting, store = type_names(cluster)[kind["name"]], kind["instance_store_gib"]
        if data_on == "instance_store" and not store:
            yield setting_problem(
                setting, kind["name"], "it has no instance store, and data_on is instance_store", "g5.xlarge"
            )
        elif store and size > store:
            problem = f"{name} takes {size:.1f} GiB, and its instance store has {store:.0f}: take a larger type"
            yield setting_problem(setting, kind["name"], problem)
        elif not store and size > room:
            problem = f"{name} takes {size:.1f} GiB beside the image ({image}) and the frameworks ({FRAMEWORKS_GIB})"
            enough = int(size + 1) + image + FRAMEWORKS_GIB
            yield setting_problem("root_volume_gib", cluster["root_volume_gib"], problem, enough)
            return
        else:
            where = (
                f"instance store of {store:.0f} GiB" if store else f"root volume of {cluster['root_volume_gib']} GiB"
            )
            yield note(f"{name} takes {size:.1f} GiB of each {kind['name']}'s {where}.")
