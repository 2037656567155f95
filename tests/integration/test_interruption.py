"""What a kill leaves on nodes is seen by health.yml, and put right by what that advises.

`make chaos` kills at many more places.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import RANK_TAG

from tests.integration.kills import kill_when, marked
from tests.integration.machines import Cluster

MASTER, WORKER, OTHER = "deeplearning-master", "deeplearning-worker2", "deeplearning-worker3"
FILE = "/etc/ssh/sshd_config.d/50-deeplearning.conf"
# As after a kill between the new file and the reload: sshd has not read the file.
LOSE_RELOAD = f"""
mv {FILE} /run/kept
rm /run/sshd.pid
systemctl reload ssh
until [ -s /run/sshd.pid ]; do :; done
mv /run/kept {FILE}
rm /run/deeplearning/reloaded/ssh
"""
# As after a machine went down while packages were installed.
INTERRUPT_DPKG = """
dpkg --remove wget
cp /var/lib/dpkg/status /var/lib/dpkg/updates/0000
"""
# As while an apt still runs whose playbook was killed.
LOCK_DPKG = """
systemd-run --quiet python3 -c '
import fcntl, time
lock = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
open("/run/locked", "w").close()
time.sleep(20)
'
until [ -e /run/locked ]; do :; done
"""
TASKS = 22
"""After so many of its tasks configure.yml is killed."""
CURE = "ansible-playbook deeplearning.aws.configure"


def failing(cluster: Cluster) -> dict[tuple[str, str], str]:
    """What health.yml advises, by the node and the check that fails."""
    ran = cluster.play("health.yml")
    checks: list[dict[str, Any]] = json.loads(
        (cluster.cloud.folder / ".deeplearning" / f"{cluster.name}.health.json").read_text()
    )["checks"]
    failed = {(check["node"], check["name"]): check["fix"] for check in checks if not check["ok"]}
    assert (ran.code == 0) is (not failed), ran.output[-6000:]
    return failed


def as_root(cluster: Cluster, node: str, script: str) -> None:
    done = cluster.ssh(node, "sudo sh -e", input=script)
    assert done.returncode == 0, done


def test_what_health_names_is_cured_by_what_it_advises_also_after_a_kill(training_cluster: Cluster) -> None:
    cluster = training_cluster
    as_root(cluster, MASTER, LOSE_RELOAD)
    as_root(cluster, OTHER, "systemctl disable --quiet --now deeplearning-apply.timer")
    failed = failing(cluster)
    assert failed.keys() == {(WORKER, "ssh"), (OTHER, "ssh"), (OTHER, "bandwidth"), (OTHER, "member")}
    assert all(CURE in advice for advice in failed.values()), failed
    with marked(cluster.cloud):
        kill_when(lambda progress: len(progress.tasks) >= TASKS, cluster, "playbooks/configure.yml")
        cured = cluster.play("playbooks/configure.yml")
    assert cured.code == 0, cured.output[-6000:]
    assert failing(cluster) == {}


@pytest.mark.long
def test_packages_are_installed_after_an_interruption_of_dpkg(training_cluster: Cluster) -> None:
    cluster = training_cluster
    as_root(cluster, OTHER, INTERRUPT_DPKG)
    refused = cluster.ssh(OTHER, "sudo apt-get install -q -y wget")
    assert refused.returncode and "dpkg was interrupted" in refused.stderr, refused
    as_root(cluster, OTHER, LOCK_DPKG)
    cured = cluster.play("playbooks/configure.yml")
    assert cured.code == 0, cured.output[-6000:]
    cluster.says(OTHER, "wget --version")


@pytest.mark.long
def test_a_machine_without_a_rank_gets_one_with_its_configuration(training_cluster: Cluster) -> None:
    """As when the master went down after the machine had booted, and neither was configured to the end."""
    cluster = training_cluster
    (lost,) = (member["instance_id"] for member in cluster.members()["members"] if member["rank"] == 3)
    as_root(cluster, MASTER, "systemctl disable --quiet --now deeplearning-publish.timer")
    as_root(cluster, OTHER, "rm /usr/local/bin/deeplearning")
    cluster.cloud.client("ec2").delete_tags(Resources=[lost], Tags=[{"Key": RANK_TAG}])
    cured = cluster.play("playbooks/configure.yml")
    assert cured.code == 0, cured.output[-6000:]
    assert f"{lost} changed=1" in cured.output, cured.output
    assert {"Key": RANK_TAG, "Value": "3"} in cluster.machines()[lost]["Tags"]
    assert cluster.says(OTHER, "cat /opt/deeplearning/workers") == cluster.says(MASTER, "cat /opt/deeplearning/workers")
    assert failing(cluster) == {}
