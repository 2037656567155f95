"""Applying a published list: which lists are accepted, and which files follow them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning import lock, safe_files
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.report import key_of
from deeplearning.gpus import held
from deeplearning.members import applying, published_list, rendering, report, signing
from deeplearning.members.applying import ApplyOutcome
from deeplearning.members.member_list import Members, read_applied, this_member, unsettled
from deeplearning.upkeep import cli

from tests.unit.node.members_kit import JOB_FLOW, Cluster, Node, cluster_in, host_key, instance
from tests.unit.node.runs_kit import members
from tests.unit.node.users_kit import HOSTILE, NOBODY, bounded, prepare


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return cluster_in(tmp_path, monkeypatch)


@pytest.fixture
def master(cluster: Cluster) -> Node:
    """With two workers, and generation 1 published."""
    master = cluster.master()
    cluster.workers(2, 3)
    master.publish()
    return master


@pytest.fixture
def worker(cluster: Cluster, master: Node) -> Node:
    return cluster.node(2)


def applied(node: Node) -> Members:
    with node.here():
        return read_applied()


# What it makes of it


def test_each_file_lists_the_members(cluster: Cluster, worker: Node) -> None:
    assert worker.apply() == ApplyOutcome(1, True, listed=True)
    assert worker.text("/opt/deeplearning/workers").split() == [f"deeplearning-worker{n}" for n in (1, 2, 3)]
    assert worker.text("/opt/deeplearning/hostfile").splitlines()[1] == "deeplearning-worker2 slots=8"
    assert worker.text("/opt/deeplearning/addresses").split() == ["10.0.0.5", "10.0.0.6", "10.0.0.7"]
    hosts = worker.text("/etc/hosts").splitlines()
    assert hosts[0] == "127.0.0.1 localhost"
    assert hosts[2:4] == ["10.0.0.5 deeplearning-worker1 deeplearning-master", "10.0.0.6 deeplearning-worker2"]
    known = worker.text("/etc/ssh/ssh_known_hosts")
    assert f"deeplearning-worker3,10.0.0.7,ip-10-0-0-7.ec2.internal {host_key(3)}\n" in known
    assert worker.text("/etc/ssh/shosts.equiv").split() == ["10.0.0.5", "10.0.0.6", "10.0.0.7"]


def test_the_variables_are_the_same_for_shells_logins_and_units(cluster: Cluster, worker: Node) -> None:
    worker.apply()
    expected = {
        "DEEPLEARNING_WORKERS_PATH": f"{worker.root}/opt/deeplearning/workers",
        "DEEPLEARNING_WORKERS_COUNT": "3",
        "DEEPLEARNING_WORKER_GPU_COUNT": "8",
        "EFS_MOUNT": worker.config.efs_mount,
        "HWLOC_COMPONENTS": "-gl",
    }
    script = f". {worker.root}/etc/profile.d/deeplearning.sh; env -0"
    shell = subprocess.run(["env", "-i", "sh", "-c", script], capture_output=True, text=True, check=True).stdout
    seen = dict(item.partition("=")[::2] for item in shell.split("\0") if item)
    assert {name: seen.get(name) for name in expected} == expected
    logins = dict(line.partition("=")[::2] for line in worker.text("/etc/environment").splitlines())
    assert {name: logins.get(name) for name in expected} == expected
    words = worker.text("/etc/systemd/system.conf.d/50-deeplearning.conf").rpartition("DefaultEnvironment=")[2].split()
    assert dict(word.partition("=")[::2] for word in words) == expected
    assert (cluster.folder / "systemctl.log").read_text() == "daemon-reload\n"


def test_systemd_is_reloaded_after_a_killed_process_did_not(
    cluster: Cluster, worker: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    environment, log = worker.root / "run/manager-environment", cluster.folder / "systemctl.log"
    for act, follows in ((applying.apply, True), (lambda *_: applying.unapply(), False)):
        with worker.here():
            with monkeypatch.context() as patch, pytest.raises(Killed):
                patch.setattr(applying, "_update_systemd", kill)
                act(worker.config, lambda: cluster.aws)
            assert ("EFS_MOUNT" in environment.read_text() if environment.exists() else False) is not follows
            act(worker.config, lambda: cluster.aws)
            assert ("EFS_MOUNT" in environment.read_text()) is follows
            act(worker.config, lambda: cluster.aws)
    # What removes the variables does not ask whether they are gone.
    assert log.read_text() == "daemon-reload\n" * 3


def test_ssh_forwards_agents_only_to_members(worker: Node) -> None:
    worker.apply()

    def asked(host: str) -> str:
        config = f"{worker.root}/etc/ssh/ssh_config.d/50-deeplearning-members.conf"
        return subprocess.run(["ssh", "-G", "-F", config, host], capture_output=True, text=True, check=True).stdout

    for host in ("deeplearning-worker3", "deeplearning-master", "10.0.0.7", "ip-10-0-0-7.ec2.internal"):
        assert "forwardagent yes\n" in asked(host) and "hostbasedauthentication yes\n" in asked(host)
        assert "stricthostkeychecking true\n" in asked(host)
    for host in ("github.com", "10.0.0.77", "deeplearning-worker33"):
        assert "forwardagent no\n" in asked(host) and "hostbasedauthentication no\n" in asked(host)


def test_a_master_that_does_not_train_has_a_name_and_is_not_a_worker(cluster: Cluster) -> None:
    cluster.config = replace(cluster.config, master_trains=False)
    master = cluster.master()
    cluster.workers(2)
    master.publish()
    master.apply()
    assert master.text("/opt/deeplearning/workers") == "deeplearning-worker2\n"
    assert master.text("/opt/deeplearning/addresses") == "10.0.0.6\n"
    assert "DEEPLEARNING_WORKERS_COUNT=1\n" in master.text("/etc/environment")
    assert "deeplearning-worker1 deeplearning-master" in master.text("/etc/hosts")


def test_a_new_generation_replaces_names_and_keeps_foreign_lines(cluster: Cluster, master: Node, worker: Node) -> None:
    worker.apply()
    hosts = worker.root / "etc/hosts"
    hosts.write_text(hosts.read_text() + "192.0.2.1 mine\n")
    cluster.aws.end(3)
    cluster.workers(9)
    master.publish()
    assert worker.apply() == ApplyOutcome(2, True, listed=True)
    lines = hosts.read_text().splitlines()
    assert "10.0.0.13 deeplearning-worker3" in lines and "192.0.2.1 mine" in lines
    assert "10.0.0.7" not in hosts.read_text()


@pytest.mark.root
def test_folders_that_clusters_share_belong_to_root_after_any_creator(cluster: Cluster, worker: Node) -> None:
    """The user of another cluster may have another uid."""
    mount = Path(cluster.config.efs_mount)
    shared, victim = [mount / "data", mount / "runs"], mount / "victim"
    shared[0].mkdir(mode=0o755)
    os.chown(shared[0], 1234, 1234)
    worker.apply()
    for folder in shared:
        seen = folder.stat()
        assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (0, 0, 0o1777)
    victim.mkdir(mode=0o700)
    shared[1].rmdir()
    shared[1].symlink_to(victim)
    assert worker.apply() == ApplyOutcome(1, False, listed=True)
    assert victim.stat().st_mode & 0o7777 == 0o700


def test_a_second_time_changes_nothing_and_a_lost_file_comes_back(worker: Node) -> None:
    worker.apply()
    assert worker.apply() == ApplyOutcome(1, False, listed=True)
    (worker.root / "opt/deeplearning/workers").unlink()
    (worker.root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    assert worker.apply() == ApplyOutcome(1, True, listed=True)
    assert "deeplearning-worker3" in worker.text("/etc/hosts")


@pytest.mark.parametrize("path", [*(target.path for target in rendering.TARGETS), paths.APPLIED, paths.UNCHANGED])
def test_unapply_reports_that_it_has_removed_a_single_file(worker: Node, path: str) -> None:
    worker.apply()
    with worker.here():
        (target,) = [target for target in rendering.TARGETS if target.path.endswith(path)] or [None]
        place = Path(target.path if target else f"{worker.root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        applying.unapply()
        place.write_text(rendering.with_block("", "x\n") if target and target.shared else "x")
        assert applying.unapply() is True and applying.unapply() is False


def test_unapply_removes_what_apply_wrote_and_nothing_else(worker: Node) -> None:
    worker.apply()
    with worker.here():
        assert applying.unapply() is True
        assert applying.unapply() is False
    left = {str(path.relative_to(worker.root)) for path in worker.root.rglob("*") if path.is_file()}
    assert not {item for item in left if "workers" in item or "deeplearning.sh" in item or "50-deeplearning" in item}
    assert worker.text("/etc/hosts") == "127.0.0.1 localhost\n"


def test_a_reader_never_sees_half_a_file(cluster: Cluster, master: Node, worker: Node) -> None:
    worker.apply()
    done, wrong = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            json.loads(cluster.path.read_text())
            for path in ("/etc/hosts", "/opt/deeplearning/workers"):
                text = worker.text(path)
                if "deeplearning-worker1" not in text or not text.endswith("\n"):
                    wrong.append(text)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(10, 20):
            cluster.workers(number)
            master.publish()
            worker.apply()
    finally:
        done.set()
        reader.join()
    assert not wrong and applied(worker).generation == 11


# What it refuses


FORGED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another address": (lambda r: r["members"][1].update(private_ip="10.0.0.99"), "is not signed by the master"),
    "an address outside": (
        lambda r: r["members"][1].update(private_ip="192.0.2.1"),
        "outside of the VPC's 10.0.0.0/16",
    ),
    "an alias of another form": (lambda r: r["members"][1].update(aliases=["github.com"]), "calls rank 2 github.com"),
    "an alias more": (lambda r: r["members"][1]["aliases"].append("x"), "calls rank 2 deeplearning-worker2, x"),
    "no alias": (lambda r: r["members"][1].update(aliases=[]), "calls rank 2 nothing"),
    "rank 0": (lambda r: r["members"][1].update(rank=0, aliases=["deeplearning-worker0"]), "calls rank 0"),
    "two of one rank": (
        lambda r: r["members"][1].update(rank=3, aliases=["deeplearning-worker3"]),
        "rank 3 2 times",
    ),
    "two of one address": (lambda r: r["members"][1].update(private_ip="10.0.0.7"), "private_ip 10.0.0.7 2 times"),
    "a line break in a name": (
        lambda r: r["members"][1].update(private_dns="a\n192.0.2.1 b"),
        "private_dns is 'a\\\\n192.0.2.1 b', not a host's name",
    ),
    "a line break in a key": (
        lambda r: r["members"][1].update(host_keys=["ssh-ed25519 " + "A" * 50 + "\n* x y"]),
        "host_keys is",
    ),
    "an unknown key": (lambda r: r.update(run="rm -rf /"), "unknown keys: run"),
    "an unknown key of a member": (lambda r: r["members"][0].update(user="root"), "unknown keys: user"),
    "a key less": (lambda r: r.pop("desired"), "missing keys: desired"),
    "another schema": (lambda r: r.update(schema=2), "schema 2, not 1"),
    "more processes than a machine has GPUs": (lambda r: r["members"][1].update(slots=65), "slots is 65, not a whole"),
    "a generation without end": (lambda r: r.update(generation=10**12), "generation is 1000000000000, not a whole"),
    "members that are none": (lambda r: r.update(members=["x"]), "the member list: a member is no JSON object"),
    "no signature": (lambda r: r.update(signature=""), "signature is '', not a signature"),
    "a master that never was": (lambda r: r.update(published_by=instance(77)), "has never been this cluster's master"),
    "a worker as master": (lambda r: r.update(published_by=instance(2)), "has never been this cluster's master"),
}


@pytest.mark.parametrize(("forge", "words"), FORGED.values(), ids=FORGED.keys())
def test_a_forged_list_is_refused_and_the_node_stays_as_it_was(
    cluster: Cluster, worker: Node, forge: Callable[[dict[str, Any]], Any], words: str
) -> None:
    worker.apply()
    before = worker.text("/etc/hosts")
    record = cluster.list
    record["generation"] = 5
    record = worker.signed(record) if words.startswith(("has never", "is not signed")) else record
    forge(record)
    cluster.put(record)
    with pytest.raises(UserError, match=words):
        worker.apply()
    assert applied(worker).generation == 1 and worker.text("/etc/hosts") == before


def test_a_list_that_a_worker_has_signed_is_refused(cluster: Cluster, worker: Node) -> None:
    worker.apply()
    cluster.put(worker.signed({**cluster.list, "generation": 2}))
    with pytest.raises(UserError, match=f"is not signed by the master that it names \\({instance(1)}\\)"):
        worker.apply()


def test_the_masters_signature_of_other_content_does_not_count(cluster: Cluster, master: Node, worker: Node) -> None:
    record = cluster.list
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(master.key), "-n", "git"]
    signature = subprocess.run(
        command, input=signing.canonical(record), capture_output=True, text=True, check=True
    ).stdout
    cluster.put({**record, "signature": "".join(signature.splitlines()[1:-1])})
    with pytest.raises(UserError, match="is not signed"):
        worker.apply()


def test_a_lower_generation_is_refused(cluster: Cluster, master: Node, worker: Node) -> None:
    old = cluster.path.read_bytes()
    cluster.workers(4)
    master.publish()
    worker.apply()
    cluster.path.write_bytes(old)
    with pytest.raises(UserError, match="has generation 1, and this node uses 2"):
        worker.apply()
    assert applied(worker).generation == 2


def test_another_list_of_the_same_generation_is_refused(cluster: Cluster, master: Node, worker: Node) -> None:
    worker.apply()
    cluster.put(master.signed({**cluster.list, "desired": 9}))
    with pytest.raises(UserError, match="has generation 1, and this node uses 1"):
        worker.apply()


def test_the_same_list_in_another_form_is_the_same_list(cluster: Cluster, worker: Node) -> None:
    worker.apply()
    cluster.path.write_text(json.dumps(cluster.list, indent=4) + "\n")
    assert worker.apply().generation == 1
    assert worker.apply() == ApplyOutcome(1, False, listed=True)
    with worker.here():
        assert cli.is_unchanged()


def test_a_list_of_an_older_cluster_on_the_same_file_system_is_never_applied(cluster: Cluster, master: Node) -> None:
    cluster.config = replace(cluster.config, cluster_id="sg-fedcba98765432100")
    new = cluster.node(5)
    with pytest.raises(UserError, match="is of cluster demo .* and this node belongs to demo"):
        new.apply()
    assert new.text("/etc/hosts") == "127.0.0.1 localhost\n"


def test_files_of_another_cluster_in_an_image_are_ignored(cluster: Cluster, worker: Node) -> None:
    worker.apply()
    brought = {**cluster.list, "cluster_id": "sg-other", "generation": 99}
    (worker.root / "var/lib/deeplearning/members.json").write_text(json.dumps(brought))
    assert worker.apply() == ApplyOutcome(1, True, listed=True)
    assert applied(worker).cluster_id == worker.config.cluster_id


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema": 1', "{}".encode("utf-16"), b"[" * 60_000]
)
def test_an_incomplete_list_is_refused(cluster: Cluster, worker: Node, content: bytes) -> None:
    cluster.path.write_bytes(content)
    with pytest.raises(UserError, match="the member list is no JSON"):
        worker.apply()


def test_a_list_that_is_no_file_of_root_alone_is_refused(
    cluster: Cluster, worker: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_files, "OWNER", os.getuid() + 1)
    with pytest.raises(UserError, match="is no file that only root can write"):
        worker.apply()
    monkeypatch.setattr(safe_files, "OWNER", os.getuid())
    cluster.path.chmod(0o666)
    with pytest.raises(UserError, match="is no file that only root can write"):
        worker.apply()
    cluster.path.rename(cluster.path.with_name("other"))
    cluster.path.symlink_to(cluster.path.with_name("other"))
    with pytest.raises(UserError, match="is a link"):
        worker.apply()
    cluster.path.unlink()
    os.mkfifo(cluster.path, 0o600)
    with pytest.raises(UserError, match="has to be a file"):
        worker.apply()


def test_a_list_that_is_too_large_is_not_read(cluster: Cluster, worker: Node) -> None:
    os.truncate(cluster.path, safe_files.RECORD_BYTES + 1)
    with pytest.raises(UserError, match="has more than the 8388608 bytes"):
        worker.apply()


def test_a_missing_list_is_refused(cluster: Cluster, worker: Node) -> None:
    cluster.path.unlink()
    with pytest.raises(UserError, match="run `deeplearning members publish` on the master"):
        worker.apply()


def test_a_list_without_a_mount_is_refused(worker: Node) -> None:
    (worker.root / "etc/mounts").write_text("")
    with pytest.raises(UserError, match="nothing is mounted at"):
        worker.apply()


@pytest.mark.parametrize("says", [errno.ESTALE, errno.ENOENT])
def test_a_file_that_is_being_replaced_is_opened_again(
    worker: Node, monkeypatch: pytest.MonkeyPatch, says: int
) -> None:
    once = [OSError(says, os.strerror(says))]
    really = os.open

    def open_being_replaced(path: str, *positional: Any, **named: Any) -> int:
        if path.endswith("/demo/members.json") and once:
            raise once.pop()
        return really(path, *positional, **named)

    monkeypatch.setattr(os, "open", open_being_replaced)
    assert worker.apply() == ApplyOutcome(1, True, listed=True)


def test_a_file_that_stays_stale_is_one_sentence(worker: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def open_stale(path: str, *positional: Any, **named: Any) -> int:
        if path.endswith("/demo/members.json"):
            raise OSError(errno.ESTALE, "Stale file handle")
        return really(path, *positional, **named)

    monkeypatch.setattr(os, "open", open_stale)
    with pytest.raises(UserError, match=r"cannot be read \(Stale file handle\)"):
        worker.apply()


# Who is asked


def test_aws_is_called_only_for_a_new_master(cluster: Cluster, master: Node, worker: Node) -> None:
    cluster.aws.calls.clear()
    worker.apply()
    assert cluster.aws.calls == ["get_object"]
    cluster.workers(4)
    master.publish()
    cluster.aws.calls.clear()
    worker.apply()
    assert cluster.aws.calls == []
    cluster.aws.end(1)
    cluster.master(8).publish()
    cluster.aws.calls.clear()
    assert worker.apply().changed
    assert cluster.aws.calls == ["get_object"]


def test_new_keys_of_a_master_count_when_it_has_reported_them(cluster: Cluster, master: Node, worker: Node) -> None:
    worker.apply()
    master.apply()
    master.key.unlink()
    shutil.copy(worker.key, master.key)
    shutil.copy(worker.key.with_suffix(".pub"), master.key.with_suffix(".pub"))
    cluster.aws.report(1, host_keys=[master.public_key])
    cluster.workers(4)
    master.publish()
    assert worker.apply() == ApplyOutcome(2, True, listed=True)


def test_a_tick_without_work_imports_nothing_and_notices_every_change(
    cluster: Cluster, master: Node, worker: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.apply()
    with worker.here():
        cli.main(["apply", "--repeated"])
        assert cli.is_unchanged()
        hosts = worker.root / "etc/hosts"
        hosts.write_text(hosts.read_text() + "\n")
        assert not cli.is_unchanged()
    worker.apply()
    with worker.here():
        assert cli.is_unchanged()
    cluster.workers(4)
    master.publish()
    with worker.here():
        assert not cli.is_unchanged()
    worker.apply()
    cluster.path.unlink()
    with worker.here():
        assert cli.is_unchanged() is False


def test_a_tick_neither_waits_for_a_pipe_nor_follows_a_link(cluster: Cluster, worker: Node) -> None:
    worker.apply()
    cluster.path.unlink()
    os.mkfifo(cluster.path)
    with worker.here():
        assert not cli.is_unchanged()
    cluster.path.unlink()
    cluster.path.symlink_to(worker.root / "var/lib/deeplearning/members.json")
    with worker.here():
        assert not cli.is_unchanged()


def test_a_second_process_does_not_wait_for_one_that_hangs(worker: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SECONDS", 0)
    with worker.here(), lock.exclusive_lock("apply"):  # noqa: SIM117
        with pytest.raises(UserError, match="another `deeplearning members apply` has been at work"):
            worker.apply()


# Reading


def test_a_settled_membership_is_complete_ready_and_uniform(cluster: Cluster, master: Node, worker: Node) -> None:
    worker.apply()
    assert unsettled(applied(worker)) == []
    cluster.aws.desired["demo-workers"] = 3
    cluster.aws.report(2, state="faulty")
    cluster.aws.report(3, gpus=4)
    master.publish()
    worker.apply()
    reasons = "; ".join(unsettled(applied(worker)))
    assert "4 machines are desired and 3 are members" in reasons
    assert "deeplearning-worker2 reported a fault; ansible-playbook deeplearning.aws.health" in reasons
    assert "the numbers of GPUs differ: deeplearning-worker1 has 8, deeplearning-worker2 has 8" in reasons


def test_this_member_is_identified_by_its_instance(worker: Node, cluster: Cluster) -> None:
    worker.apply()
    with worker.here():
        assert this_member(read_applied()).alias == "deeplearning-worker2"
    stranger = cluster.node(55)
    assert stranger.apply() == ApplyOutcome(1, True, listed=False)
    with stranger.here(), pytest.raises(UserError, match="is not in the member list"):
        this_member(read_applied())


# Reports


def test_only_what_has_changed_is_reported(cluster: Cluster, worker: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "AwsClient", lambda region: cluster.aws)
    cluster.aws.user_id = f"AROAWORKER:{instance(2)}"
    key = key_of(cluster.aws.user_id)
    with worker.here():
        assert report.report(worker.config) == (True, "")
        reported = report.read(cluster.aws, "b", key)
        assert (reported["gpus"], reported["host_keys"], reported["state"]) == (8, [worker.public_key], "ready")
        cluster.aws.calls.clear()
        assert report.report(worker.config, trust_cache=True) == (False, "") and not cluster.aws.calls
        # Asked by a person or a playbook it looks.
        assert report.report(worker.config) == (False, "")
        del cluster.aws.objects[key]
        assert report.report(worker.config) == (True, "") and key in cluster.aws.objects
    assert not (cluster.folder / "systemctl.log").exists()
    (worker.root / "etc/mounts").write_text("")
    with worker.here():
        changed, fault = report.report(worker.config)
        assert changed and f"nothing is mounted at {worker.config.efs_mount}" in fault
        assert report.read(cluster.aws, "b", key)["state"] == "faulty"
        tried = f"start --no-block {worker.config.efs_mount}\n"
        assert (cluster.folder / "systemctl.log").read_text() == tried
        lacking = report.report(replace(worker.config, gpus=4))[1]
        assert "has 8 GPUs and its type has 4" in lacking and "terminate the machine if it has any" in lacking
        assert report.report(replace(worker.config, gpus=None))[1] == fault
        held.hold("GPU 2 fell off the bus (Xid 79)")
        assert report.report(worker.config)[1] == "this machine is held: GPU 2 fell off the bus (Xid 79)"
        reported = report.read(cluster.aws, "b", key)
        assert (reported["state"], reported["log"]) == ("held", ["GPU 2 fell off the bus (Xid 79)"])


@pytest.mark.root
def test_a_list_that_does_not_exist_yet_is_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An NFS client caches a missing name: a new node would not see its first list for some time."""
    opened: list[str] = []
    opens = os.open
    monkeypatch.setattr(os, "open", lambda path, *flags, **more: opened.append(path) or opens(path, *flags, **more))
    path = tmp_path / ".deeplearning/red/members.json"
    for present in (path.parent.parent, path.parent, None):
        with pytest.raises(UserError, match="does not exist: run `deeplearning members publish`"):
            published_list.content_of(str(path))
        if present:
            present.mkdir()
    assert not opened
    path.write_text("{}")
    path.chmod(0o644)
    assert published_list.content_of(str(path)) == b"{}"


# Monitoring


def test_prometheus_on_the_master_finds_all_members_and_those_with_gpus(cluster: Cluster) -> None:
    cluster.config = replace(cluster.config, monitoring=True)
    master = cluster.master()
    cluster.workers(2)
    master.publish()
    assert master.apply().changed
    folder = "/etc/deeplearning/monitoring"
    nodes, gpus = (json.loads(master.text(f"{folder}/{name}.json")) for name in ("nodes", "gpus"))
    assert [group["targets"] for group in nodes] == [["10.0.0.5:9100"], ["10.0.0.6:9100"]]
    assert [group["targets"] for group in gpus] == [["10.0.0.5:9400"], ["10.0.0.6:9400"]]
    names = [group["labels"]["instance"] for group in nodes]
    assert names == ["deeplearning-worker1", "deeplearning-worker2"]
    assert not master.apply().changed
    cluster.config = replace(cluster.config, role="worker")
    worker = cluster.node(2)
    worker.apply()
    assert not (worker.root / "etc/deeplearning/monitoring").exists()


def test_members_without_gpus_have_no_dcgm_exporter() -> None:
    assert json.loads(rendering._gpu_targets(members(2), {})) == []
    assert len(json.loads(rendering._node_targets(members(2), {}))) == 2


def test_an_unwatched_master_has_no_targets(cluster: Cluster) -> None:
    master = cluster.master()
    master.publish()
    master.apply()
    assert not (master.root / "etc/deeplearning/monitoring").exists()


# EMR


@pytest.fixture
def emr_worker(cluster: Cluster) -> Node:
    cluster.aws.emr = True
    cluster.config = replace(cluster.config, job_flow=JOB_FLOW, user="hadoop", master_trains=False)
    master = cluster.master()
    cluster.workers(120, 9)
    master.publish()
    worker = cluster.node(9)
    (worker.root / "home/hadoop").mkdir(parents=True)
    return worker


@pytest.mark.root
def test_old_scripts_for_emr_find_all_addresses_in_numeric_order(emr_worker: Node) -> None:
    assert emr_worker.apply().changed
    assert emr_worker.text("/home/hadoop/worker_ip_file").split() == ["10.0.0.5", "10.0.0.13", "10.0.0.124"]
    assert (emr_worker.root / "home/hadoop/worker_ip_file").stat().st_uid == NOBODY
    assert not emr_worker.apply().changed
    # Such a script may have written it.
    (emr_worker.root / "home/hadoop/worker_ip_file").write_text("10.0.0.5\n")
    assert emr_worker.apply().changed
    with emr_worker.here():
        assert applying.unapply()
    assert not (emr_worker.root / "home/hadoop/worker_ip_file").exists()


@pytest.mark.root
@pytest.mark.parametrize("kind", HOSTILE)
def test_root_does_not_follow_what_the_user_of_emr_puts_in_the_files_place(kind: str, emr_worker: Node) -> None:
    home = emr_worker.root / "home/hadoop"
    os.chown(home, NOBODY, -1)
    file, victim = home / "worker_ip_file", emr_worker.root / "etc/victim"
    victim.write_text("secret")
    if kind == "link":
        file.symlink_to(victim)
    else:
        prepare(file, kind)
    if kind == "folder":
        with pytest.raises(IsADirectoryError):
            emr_worker.apply()
        file.rmdir()
    assert bounded(lambda: emr_worker.apply().changed)
    assert victim.read_text() == "secret" and victim.stat().st_uid == os.getuid()
    assert file.read_text().split() == ["10.0.0.5", "10.0.0.13", "10.0.0.124"]
    assert stat.S_ISREG(file.lstat().st_mode) and file.stat().st_uid == NOBODY
    file.unlink()
    if kind != "folder":
        prepare(file, kind)
    with emr_worker.here():
        assert bounded(applying.unapply) and not os.path.lexists(file)


def test_only_nodes_of_emr_have_the_file_of_old_scripts(worker: Node) -> None:
    worker.apply()
    assert not (worker.root / "home").exists()


@pytest.mark.root
def test_a_core_node_of_emr_cannot_pass_for_the_master(cluster: Cluster, emr_worker: Node) -> None:
    emr_worker.apply()
    # Its report has the same role as the master's.
    cluster.aws.report(9, host_keys=[emr_worker.public_key])
    cluster.put(emr_worker.signed({**cluster.list, "generation": 2, "published_by": instance(9)}))
    with pytest.raises(UserError, match=f"{instance(9)}, which is not the primary node of {JOB_FLOW}"):
        emr_worker.apply()
