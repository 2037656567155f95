"""Shared file systems, mounted by the command that AWS documents."""

from __future__ import annotations

import json
import secrets
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from localcloud.testing.booted import Clients, Network, clear_faults, localcloud, traces, wait_for

OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"


def file_system(cloud: Clients) -> str:
    made = cloud.efs.create_file_system(CreationToken=secrets.token_hex(8), Encrypted=True, ThroughputMode="elastic")
    name: str = made["FileSystemId"]
    wait_for(lambda: _state(cloud, name) == "available", 120, "the file system is available")
    return name


def _state(cloud: Clients, name: str) -> str:
    return str(cloud.efs.describe_file_systems(FileSystemId=name)["FileSystems"][0]["LifeCycleState"])


def mount_target(network: Network, name: str) -> tuple[str, str]:
    """A mount target that lets members of the network's group in, and the security group that does it."""
    ec2 = network.cloud.ec2
    group = ec2.create_security_group(GroupName=name, Description="efs", VpcId=network.vpc)["GroupId"]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[nfs_rule(network)])
    made = network.cloud.efs.create_mount_target(FileSystemId=name, SubnetId=network.private, SecurityGroups=[group])

    def available() -> bool:
        answer = network.cloud.efs.describe_mount_targets(MountTargetId=made["MountTargetId"])["MountTargets"]
        return bool(answer[0]["LifeCycleState"] == "available")

    wait_for(available, 120, "the mount target is available")
    return str(made["MountTargetId"]), str(group)


def nfs_rule(network: Network) -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "UserIdGroupPairs": [{"GroupId": network.group}]}


def mount(name: str, more: str = "", place: str = "/efs") -> str:
    source = f"{name}.efs.us-east-1.amazonaws.com:/"
    return f"sudo mkdir -p {place} && sudo mount -t nfs4 -o {OPTIONS}{more} {source} {place}"


@pytest.fixture(scope="module")
def pair(shared_network: Network) -> tuple[str, ...]:
    return tuple(shared_network.launch(2))


@dataclass(frozen=True)
class Site:
    """Two machines for all tests of this file, and a file system of the test's own."""

    network: Network
    first: str
    second: str
    name: str
    """of the file system"""


@pytest.fixture
def site(shared_network: Network, pair: tuple[str, ...]) -> Iterator[Site]:
    """A file system that no machine can reach yet; afterwards the machines have nothing mounted."""
    try:
        yield Site(shared_network, *pair, file_system(shared_network.cloud))
    finally:
        clear_faults()
        for machine in pair:
            shared_network.ssh(machine, "sudo umount --lazy /efs /again; sudo sed -i '/ nfs4 /d' /etc/fstab")


@pytest.fixture
def shared(site: Site) -> Site:
    """The same file system, mounted by both machines at /efs with everybody allowed to write."""
    mount_target(site.network, site.name)
    for machine in (site.first, site.second):
        site.network.says(machine, f"{mount(site.name)} && sudo chmod 1777 /efs")
    return site


def test_two_machines_share_a_folder_as_long_as_the_rules_let_them(site: Site) -> None:
    network, first, second, name = site.network, site.first, site.second, site.name
    cloud = network.cloud

    # No mount target: the name leads nowhere.
    done = network.ssh(first, mount(name, ",retry=0"))
    assert done.returncode == 32, done
    assert "Failed to resolve server" in done.stderr

    _, group = mount_target(network, name)
    for machine in (first, second):
        network.says(machine, mount(name))
    source = f"{name}.efs.us-east-1.amazonaws.com:/"
    assert network.says(first, "findmnt -n -o SOURCE /efs") == source
    assert network.says(first, f"grep -c '^{source} /efs ' /proc/mounts") == "1"
    network.says(first, "sudo chmod 1777 /efs && echo from the first > /efs/note && chmod 600 /efs/note")
    assert network.says(second, "cat /efs/note") == "from the first"
    assert network.says(second, "stat -c '%U %a' /efs/note") == "ubuntu 600"
    assert network.says(second, "sudo touch /efs/roots && stat -c %U /efs/roots") == "root"
    assert network.ssh(first, "rm -f /efs/roots").returncode != 0, "the folder is sticky"

    # It is in fstab, so it is there again after a reboot.
    line = f"{name}.efs.us-east-1.amazonaws.com:/ /efs nfs4 {OPTIONS},_netdev 0 0"
    network.says(second, f"echo '{line}' | sudo tee -a /etc/fstab")
    cloud.ec2.reboot_instances(InstanceIds=[second])
    wait_for(lambda: network.ssh(second, "cat /efs/note").stdout == "from the first\n", 120, "mounted after the reboot")

    # What is mounted stays; who comes now waits in vain.
    cloud.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=[nfs_rule(network)])
    done = network.ssh(first, mount(name, ",retry=0", "/again"))
    assert done.returncode == 32
    assert "Connection timed out" in done.stderr
    assert network.says(second, "cat /efs/note") == "from the first"


# Both scripts run at the same time. They wait for each other by listing the folder, since lists are never cached.
RENDEZVOUS = """
import fcntl, json, os, pathlib, sys, time

def show(name):
    pathlib.Path("/efs", name).touch()

def wait_for(name):
    while name not in os.listdir("/efs"):
        time.sleep(0.005)

def seconds_until(condition):
    start = time.monotonic()
    while not condition():
        time.sleep(0.1)
    return time.monotonic() - start
"""


def side_by_side(network: Network, scripts: dict[str, str]) -> dict[str, str]:
    """Return what the scripts print, which run at once, each in its machine."""

    def run(machine: str) -> str:
        script = RENDEZVOUS + textwrap.dedent(scripts[machine])
        done = network.ssh(machine, "python3", "-", input=script)
        assert done.returncode == 0, f"{machine}: {done.stdout} {done.stderr}"
        return done.stdout

    with ThreadPoolExecutor() as pool:
        return dict(zip(scripts, pool.map(run, scripts), strict=True))


@pytest.mark.long
def test_sizes_and_missing_names_are_cached_and_an_opened_file_is_not(shared: Site) -> None:
    reader, writer = shared.first, shared.second
    writing = """
        pathlib.Path("/efs/log").write_text("one")
        show("begun")
        wait_for("ready")
        with open("/efs/log", "a") as log:
            log.write(" and two")
        pathlib.Path("/efs/new").write_text("new")
        show("written")
    """
    reading = """
        wait_for("begun")
        log = open("/efs/log")
        assert not os.path.exists("/efs/new")
        assert os.stat("/efs/log").st_size == 3
        show("ready")
        wait_for("written")
        seen = {"size": os.fstat(log.fileno()).st_size, "new": os.path.exists("/efs/new")}
        size_seconds = seconds_until(lambda: os.fstat(log.fileno()).st_size == 11)
        with open("/efs/log") as again:
            opened = again.read()
        name_seconds = seconds_until(lambda: os.path.exists("/efs/new"))
        print(json.dumps({**seen, "opened": opened, "size_seconds": size_seconds, "name_seconds": name_seconds}))
    """
    seen = json.loads(side_by_side(shared.network, {reader: reading, writer: writing})[reader])
    assert seen["size"] == 3, "the size of an open file is cached"
    assert not seen["new"], "a missing name is cached"
    assert seen["opened"] == "one and two"
    # A size is cached for 3 s or so, and a missing name for up to 30 s.
    assert seen["name_seconds"] > 15 and seen["size_seconds"] < seen["name_seconds"]


def test_a_file_that_is_replaced_by_rename_is_read_whole_at_once(shared: Site) -> None:
    reader, writer = shared.first, shared.second
    writing = """
        def replace(number):
            with open("/efs/list.new", "w") as new:
                json.dump([number] * (100 + number * 37 % 2000), new)
            os.rename("/efs/list.new", "/efs/list")

        replace(0)
        show("begun")
        wait_for("ready")
        for number in range(1, 300):
            replace(number)
        show("written")
        wait_for("done")
        replace(1000)
        show("last")
    """
    reading = """
        wait_for("begun")
        old = open("/efs/list")
        show("ready")
        read = []
        while "written" not in os.listdir("/efs"):
            with open("/efs/list") as file:
                read.append(json.load(file))
        assert all(len(set(numbers)) == 1 for numbers in read)
        assert len(read) > 10
        assert read == sorted(read)
        show("done")
        wait_for("last")
        with open("/efs/list") as file:
            assert json.load(file)[0] == 1000
        assert json.load(old) == [0] * 100, "who has a file open keeps reading the old one"
    """
    side_by_side(shared.network, {reader: reading, writer: writing})


def test_flock_excludes_other_machines_and_ends_with_its_process(shared: Site) -> None:
    holder, other = shared.first, shared.second
    holding = """
        lock = open("/efs/lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        show("locked")
        wait_for("refused")
    """
    trying = """
        wait_for("locked")
        lock = open("/efs/lock", "r+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sys.exit("two machines hold the lock")
        except BlockingIOError:
            pass
        if os.fork() == 0:
            os.execlp("timeout", "timeout", "-s", "KILL", "1", "flock", "/efs/lock", "true")
        assert os.WTERMSIG(os.wait()[1]) == 9, "who waits for a lock can be killed"
        show("refused")
        fcntl.flock(lock, fcntl.LOCK_EX)
    """
    side_by_side(shared.network, {holder: holding, other: trying})


def test_a_stalled_file_system_makes_everybody_wait(shared: Site) -> None:
    network, name, first, second = shared.network, shared.name, shared.first, shared.second
    network.says(first, "sudo umount /efs")
    assert localcloud("fault", "stall", name).returncode == 0
    assert network.says(second, "sudo timeout -s KILL 3 ls /efs || echo in vain").endswith("in vain")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(network.says, first, f"{mount(name)} && echo mounted")
        assert network.says(first, "sleep 2; findmnt /efs || echo not mounted") == "not mounted"
        assert localcloud("fault", "clear", name).returncode == 0
        assert waiting.result() == "mounted"
    for machine in (first, second):
        network.says(machine, "sudo timeout -s KILL 10 ls /efs")


def test_what_serves_a_machine_ends_with_its_mount_and_with_the_machine(shared: Site) -> None:
    network, name = shared.network, shared.name
    assert len(servers(name)) == 2
    for left, machine in ((1, shared.first), (0, shared.second)):
        network.says(machine, "sudo umount /efs")
        wait_for(lambda left=left: len(servers(name)) == left, 120, "the server of a machine that unmounted has ended")
    # The machine dies while a process of it waits for a file system that stands still.
    (third,) = network.launch()
    network.says(third, mount(name))
    assert len(servers(name)) == 1
    assert localcloud("fault", "stall", name).returncode == 0
    network.says(third, "nohup ls /efs >/dev/null 2>&1 &")
    assert localcloud("fault", "kill", third).returncode == 0
    wait_for(lambda: servers(name) == [], 120, "the server of the dead machine has ended")
    assert not [line for line in traces()["mounts"] if name in line]


def servers(name: str) -> list[str]:
    return [words for words in traces()["processes"] if "bindfs" in words and name in words]


def test_nothing_above_the_folder_can_be_mounted(site: Site) -> None:
    mount_target(site.network, site.name)
    source = f"{site.name}.efs.us-east-1.amazonaws.com:/../.."
    command = f"sudo mkdir -p /up && sudo mount -t nfs4 -o nfsvers=4.1,retry=0 {source} /up"
    done = site.network.ssh(site.first, command)
    assert done.returncode == 32
    assert "No such file or directory" in done.stderr
