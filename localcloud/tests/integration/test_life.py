"""Coming up, going down, and what is left: nothing. These tests bring their own local cloud up and down."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from localcloud import state
from localcloud.core.settings import HOME
from localcloud.testing.booted import Network, command, environment, localcloud, traces, up, wait_for


@pytest.mark.long
def test_a_hundred_random_steps_leave_nothing(nothing_up: dict[str, object], key: Path) -> None:
    network = Network.create(up(), key)
    ec2 = network.cloud.ec2
    chance = random.Random(20261120)
    alive: list[str] = []

    def launch() -> None:
        alive.extend(network.launch(wait=False))

    def terminate() -> None:
        ec2.terminate_instances(InstanceIds=[alive.pop(chance.randrange(len(alive)))])

    def kill() -> None:
        name = alive.pop(chance.randrange(len(alive)))
        wait_for(lambda: localcloud("fault", "kill", name).returncode == 0, 120, f"{name} has booted, and was killed")

    def reboot() -> None:
        name = chance.choice(alive)
        wait_for(lambda: network.cloud.instance(name)["State"]["Name"] == "running", 120, f"{name} is running")
        ec2.reboot_instances(InstanceIds=[name])

    for _ in range(100):
        ends = [terminate, kill, terminate, kill, reboot] if alive else []
        possible = ([launch] * 4 if len(alive) < 4 else []) + ends
        chance.choice(possible)()
    shown = localcloud("status")
    assert shown.returncode == 0
    assert localcloud("down").stdout == "the local cloud is down\n"
    assert traces() == nothing_up
    assert not state.RUN.exists()


def test_a_service_that_died_is_cleaned_up_by_the_next_which_ends_in_good_order(
    nothing_up: dict[str, object], key: Path, tmp_path: Path
) -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    HOME.chmod(0o755)  # as older versions left it
    network = Network.create(up("--cpus-per-instance", "0.5", "--memory-per-instance", "300M"), key)
    assert HOME.stat().st_mode & 0o777 == 0o700
    (machine,) = network.launch()

    # The limits of an instance are those that were asked for. Two processes that use a second of processor each: with
    # half a processor for both they need four, and more on a busy machine.
    spin = "python3 -c 'import time\nwhile time.process_time() < 1: pass'"
    began, ended = network.says(machine, f"date +%s.%N; {spin} & {spin}; wait; date +%s.%N").split()
    assert float(ended) - float(began) > 3.5
    greedy = "python3 -c \"print(len(b'x' * (600 << 20)))\" || echo ended"
    assert wait_for(lambda: network.ssh(machine, greedy).stdout, 120, "an answer") == "ended\n"

    pid = state.service_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: state.service_pid() is None, 120, "the service is gone")
    assert localcloud("status").returncode == 2
    cloud = up()
    assert cloud.instances() == []
    Network.create(cloud, key).launch(2)
    kept = tmp_path / "log"
    os.link(state.LOG, kept)  # `down` throws its folder away
    assert localcloud("down").returncode == 0
    assert kept.read_text(encoding="utf-8").rstrip().endswith("ended")


@pytest.mark.long
def test_an_interrupted_up_leaves_nothing(nothing_up: dict[str, object]) -> None:
    for delay in (0.2, 0.6, 1.0, 1.4):
        starting = subprocess.Popen(
            [sys.executable, "-m", "localcloud", "up"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(delay)  # Ctrl-C comes at a moment, not on a condition
        starting.send_signal(signal.SIGINT)
        starting.wait(60)
        if starting.returncode == 0:
            assert localcloud("down").returncode == 0
        assert traces() == nothing_up
        assert not state.RUN.exists()


def test_it_refuses_what_cannot_work(nothing_up: dict[str, object], tmp_path: Path) -> None:
    def refusal(*words: str, path: str | None = None) -> str:
        program = [sys.executable, "-m", "localcloud", *words]
        variables = {**os.environ, "PATH": path or os.environ["PATH"], "PYTHONPATH": os.getcwd()}
        done = command(*program, env=variables)
        assert done.returncode == 2, done
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        return done.stderr

    without_programs = refusal("up", path=str(tmp_path))
    assert "apt-get install" in without_programs and "systemd-container" in without_programs
    profile = tmp_path / "profile.json"
    profile.write_text("{", encoding="utf-8")
    assert "is not JSON" in refusal("up", "--latency", str(profile))
    command("ip", "link", "add", "taken0", "type", "bridge")
    try:
        command("ip", "addr", "add", "198.51.100.77/32", "dev", "taken0")
        assert "198.51.100.0/24 is in use on this machine" in refusal("up")
    finally:
        command("ip", "link", "del", "taken0")


def test_a_new_internet_gateway_is_attached_at_once_unless_the_cloud_is_strict(nothing_up: dict[str, object]) -> None:
    for options, code in (([], ""), (["--strict"], "InvalidInternetGatewayID.NotFound")):
        assert localcloud("up", "--api-only", *options).returncode == 0
        assert json.loads(localcloud("status", "--json").stdout)["strict"] is bool(options)
        variables = environment()
        session = boto3.Session(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
        assert attach(session.client("ec2", "us-east-1", endpoint_url=variables["AWS_ENDPOINT_URL"])) == code
        assert localcloud("down").returncode == 0


def attach(ec2: Any) -> str:
    """Attach a new internet gateway to a new VPC at once, and return the code of AWS's error."""
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    try:
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_a_machine_has_one_local_cloud_and_up_and_down_can_be_said_twice(
    nothing_up: dict[str, object], tmp_path: Path
) -> None:
    up("--api-only")
    again = localcloud("up")
    assert again.returncode == 0
    assert "is up already" in again.stdout
    elsewhere = {**os.environ, "LOCALCLOUD_HOME": str(tmp_path)}
    for verb in ("up", "down"):
        done = command(sys.executable, "-m", "localcloud", verb, env=elsewhere)
        assert done.returncode == 2
        assert f"end it with LOCALCLOUD_HOME={HOME} localcloud down" in done.stderr
    assert localcloud("status").returncode == 0
    assert localcloud("down").returncode == 0
    assert localcloud("down").stdout == "the local cloud is down already\n"
    assert command(sys.executable, "-m", "localcloud", "down", env=elsewhere).returncode == 0


@pytest.fixture
def everybodys_folder() -> Iterator[Path]:
    """Not pytest's own: it closes that to all but root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_without_root_or_namespaces_there_is_an_api(nothing_up: dict[str, object], everybodys_folder: Path) -> None:
    unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    powerless = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    for limits, problem in ((unprivileged, "needs root"), (powerless, "refuses them (unshare: ")):
        variables = {**os.environ, "LOCALCLOUD_HOME": str(everybodys_folder / limits[1])}

        def run(*words: str, limits: list[str] = limits, env: dict[str, str] = variables) -> Any:
            return command(*limits, sys.executable, "-m", "localcloud", *words, env=env)

        refused = run("up")
        assert refused.returncode == 2
        assert problem in refused.stderr
        assert "Without machines it works: localcloud up --api-only" in refused.stderr
        assert refused.stderr.count("\n") == 1
        started = run("up", "--api-only")
        assert started.returncode == 0, started.stderr
        try:
            assert run("status").returncode == 0
        finally:
            assert run("down").returncode == 0
            assert run("status").returncode == 2


@pytest.mark.long
def test_a_full_disk_leaves_no_half_image(tmp_path: Path) -> None:
    assert command("mount", "-t", "tmpfs", "-o", "size=150M", "tmpfs", str(tmp_path)).returncode == 0
    try:
        program = [sys.executable, "-m", "localcloud", "image", "build"]
        done = command(*program, timeout=200, env={**os.environ, "LOCALCLOUD_HOME": str(tmp_path)})
        assert done.returncode == 2
        assert "could not be built" in done.stderr
        assert "MiB are free" in done.stderr
        assert [path.name for path in (tmp_path / "images").iterdir() if path.name != "packages"] == []
        assert not [place for place in traces()["mounts"] if place.startswith(f"{tmp_path}/")]
    finally:
        command("umount", "--lazy", str(tmp_path))
