"""logs.yml on booted machines: what they send, without the secrets that are planted there, and with a silent master."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.integration.machines import Cluster, localcloud

pytestmark = pytest.mark.gate

MASTER, WORKER = "deeplearning-master", "deeplearning-worker2"
# Made of parts: sudo writes commands to the journal as well.
PLANTED = {"key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "password": "correct-horse-battery"}


def collect(cluster: Cluster, **options: str) -> tuple[str, dict[str, str]]:
    """Return what logs.yml prints, and what is in the archive, by the names there."""
    ran = cluster.play("playbooks/logs.yml", **options)
    assert ran.code == 0, ran.output[-6000:]
    (file,) = Path(cluster.cloud.folder, ".deeplearning/logs").glob(f"{cluster.name}-logs-*.tar.gz")
    with tarfile.open(file) as archive:
        files = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive.getmembers()}
        texts = {name: content.read().decode() for name, content in files.items() if content}
    file.unlink()
    return ran.output, texts


def test_booted_nodes_send_their_logs_without_secrets_and_a_silent_master_is_named(training_cluster: Cluster) -> None:
    cluster = training_cluster
    run = f"/efs/runs/{cluster.name}/planted"
    cluster.says(MASTER, f"mkdir -p {run}/logs && echo '{{}}' > {run}/run.json")
    line = f"aws_secret_access_key={PLANTED['key']} train.py --db-password {PLANTED['password']} --epochs 2"
    cluster.says(MASTER, f"echo '2026-11-23T04:00:00.000Z {line}' > {run}/logs/deeplearning-worker1.worker0.log")
    cluster.says(WORKER, f"logger -t planted '{line}'")
    try:
        output, files = collect(cluster)
        assert f"Answered: {MASTER}, {WORKER}, deeplearning-worker3." in output, output
        for node in (MASTER, WORKER):
            assert "PLAY RECAP" in files[f"nodes/{node}/boot.log"]
            assert "deeplearning-apply.timer" in files[f"nodes/{node}/units.txt"]
            assert "deeplearning-worker2" in files[f"nodes/{node}/members.json"]
            assert "debian" in files[f"nodes/{node}/versions.txt"].lower()
        assert "planted" in files[f"nodes/{WORKER}/journal.log"]
        assert "--epochs 2" in files[f"nodes/{MASTER}/runs/planted/logs/deeplearning-worker1.worker0.log"]
        for secret in PLANTED.values():
            assert not [name for name, text in files.items() if secret in text]
        _output, one = collect(cluster, node=WORKER, run_id="planted")
        assert {name.split("/")[1] for name in one if name.startswith("nodes/")} == {WORKER}
        assert f"nodes/{WORKER}/runs/planted/run.json" in one
    finally:
        cluster.says(MASTER, f"rm -r {run}")
    (master,) = cluster.in_service("master")
    assert localcloud("exec", master, "--", "systemctl", "stop", "ssh").returncode == 0
    try:
        output, files = collect(cluster)
    finally:
        assert localcloud("exec", master, "--", "systemctl", "start", "ssh").returncode == 0
    assert f"{WORKER} was not asked: the master, which leads to it, does not answer." in " ".join(output.split())
    assert "aws/master-activities.txt" in files and files[f"aws/consoles/{master}.txt"].strip()
