"""emr_efs_bootstrap.sh as published, as the bootstrap action of a cluster of EMR on the file system of another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcloud.testing.booted import wait_for
from tests.account.kit import REGION
from tests.integration.emr import end_of_bootstrap, logs_of, run_job_flow, state_of
from tests.integration.machines import Cluster
from tests.published.conftest import Sources
from tests.published.kit import MASTER
from tests.published.pages import owner_remedy
from tests.published.programs import EFS_BOOTSTRAP

pytestmark = pytest.mark.long

PUBLISH = "sudo deeplearning members publish"


@pytest.fixture
def flow(emr_cluster: Cluster, sources: Sources) -> Iterator[str]:
    """A cluster whose nodes have run the script."""
    system = emr_cluster.says(MASTER, "findmnt -no SOURCE /efs").partition(".")[0]
    script = sources.file(EFS_BOOTSTRAP)
    flow = run_job_flow(emr_cluster, script.name, script.read_text(), system, REGION)
    try:
        # Its questions to the CLI, which fail, take 50 s.
        end_of_bootstrap(emr_cluster, flow, 300)
        yield flow
    finally:
        emr_cluster.cloud.client("emr").terminate_job_flows(JobFlowIds=[flow])
        emr_cluster.says(MASTER, owner_remedy())


def test_it_mounts_the_file_system_on_each_node_and_takes_the_member_list_from_root(
    emr_cluster: Cluster, flow: str
) -> None:
    status = state_of(emr_cluster, flow)
    assert status["State"] == "WAITING", (status, logs_of(emr_cluster, flow, "stderr"))
    printed = logs_of(emr_cluster, flow, "stdout")
    assert len(printed) == 3
    for text in printed:
        assert text.count("Attempt 5 at verifying efs") == 2 and text.endswith("File system is mounted successfully.\n")

    # chown -R makes all of it hadoop's. The other cluster's nodes accept no such list, and keep theirs.
    before = emr_cluster.members()["members"]
    refused = "/efs/.deeplearning belongs to hadoop and has to be a folder of root"
    wait_for(lambda: refused in emr_cluster.ssh(MASTER, PUBLISH).stderr, 120, "the master refuses the folder")
    assert emr_cluster.members()["members"] == before
    emr_cluster.says(MASTER, f"{owner_remedy()} && {PUBLISH}")
    assert emr_cluster.members()["members"] == before
