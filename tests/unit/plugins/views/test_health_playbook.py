"""The last play of health.yml: what it prints and saves of the nodes' answers, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.unit.plugins.hostile_kit import EVIL
from tests.unit.plugins.instances_kit import node_result

ROOT = Path(__file__).resolve().parents[4]
NODES = ("deeplearning-master", "deeplearning-worker2")


def judge(folder: Path, *results: dict[str, Any]) -> tuple[int, str, dict[str, Any]]:
    """Return the exit code, the output and the saved verdict."""
    for node, result in zip(NODES, results, strict=True):
        (folder / node).write_text(json.dumps(result))
    inventory = {"master": {"hosts": {NODES[0]: {}}}, "cluster": {"hosts": dict.fromkeys(NODES)}, "joining": {}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": inventory}}))
    # What a lookup returns is never run as a template, just like what a node prints.
    read = "{{ lookup('file', inventory_hostname) | from_json }}"
    register = {
        "hosts": "cluster",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.set_fact": {"health_checked": read}}],
    }
    last = yaml.safe_load((ROOT / "playbooks/health.yml").read_text())[-1]
    cluster = {"cluster": {"name": "red"}}
    last["vars"] = {"checked": cluster, "deeplearning_folder": str(folder)}
    (folder / "judge.yml").write_text(yaml.safe_dump([register, last], width=1000))
    program = Path(sys.executable).parent / "ansible-playbook"
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_INVENTORY_ENABLED": "yaml",
        "HOME": str(folder),
        # The account need not exist on this machine.
        "USER": "jürgen",
        "LOGNAME": "jürgen",
    }
    done = subprocess.run(
        [str(program), "-i", "hosts.yml", "judge.yml"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    verdict = json.loads((folder / "red.health.json").read_text())
    return done.returncode, done.stdout + done.stderr, verdict


def test_a_healthy_cluster_is_printed_and_saved(tmp_path: Path) -> None:
    code, output, verdict = judge(tmp_path, node_result(), node_result())
    assert code == 0, output
    assert "Cluster red is healthy: 2 nodes, all 8 checks pass." in output
    assert verdict["ok"] and len(verdict["checks"]) == 8
    assert (tmp_path / "red.health.json").stat().st_mode & 0o777 == 0o644
    assert "changed" not in output


def test_a_failing_check_fails_the_playbook_and_hides_no_other(tmp_path: Path) -> None:
    gone = {"unreachable": True, "msg": "Failed to connect:\nConnection timed out"}
    code, output, verdict = judge(tmp_path, node_result(efs=EVIL), gone)
    assert code == 2
    assert f"deeplearning-master, efs: {EVIL}" in output
    assert "deeplearning-worker2, reachable: Connection timed out" in output
    assert f"Cluster red is not healthy: 2 checks fail. All of it is in {tmp_path}/red.health.json." in output
    assert not verdict["ok"]
