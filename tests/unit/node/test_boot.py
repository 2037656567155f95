"""A machine that configures itself: the playbook's steps, its failures, and its answer to the launch hook."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deeplearning.boot import baking, configuring, first_stage, playbook, system
from deeplearning.contract import boot as contract
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError

from tests.unit.node.boot_kit import INSTANCE, NO_ACTION, OWN_REPORT, PARAMETERS, ROLE_ID, SHA256, Boot, booting

FAILED = json.dumps({"state": "failed"}).encode()
OF_THE_MACHINE = (
    *("/var/lib/systemd/random-seed", "/var/lib/amazon/ssm/registration", "/var/lib/amazon/ssm/Vault/Store/x"),
    *("/root/.ssh/known_hosts", "/home/x/.ssh/known_hosts.old", "/var/tmp/x", "/var/tmp/.x", "/var/tmp/x2/y"),
)
"""Files that an image must not have, in addition to the names in the list."""
SETTINGS: dict[str, Any] = {"cluster": {"cluster": "red", "efs_mount": "/efs"}, "efs_tls": True}
SETTINGS |= {"variables": {"framework_wheels": "/efs/data/wheels"}}


@pytest.fixture
def booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boot]:
    with booting(tmp_path, monkeypatch) as booted:
        monkeypatch.setattr(playbook, "LOG", str(tmp_path / "log"))
        monkeypatch.setattr(configuring, "CONFIGURED", str(tmp_path / "configured"))
        monkeypatch.setattr(paths, "CONFIGURING", str(tmp_path / "configuring"))
        monkeypatch.setattr(paths, "PROGRAM", executable(tmp_path / "deeplearning", f"echo $@ >> {tmp_path}/called"))
        monkeypatch.setattr(first_stage.InstanceApi, "metadata", lambda _machine, path: booted.aws.metadata[path])
        yield booted


# The playbook


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("TASK [Gather facts about the operating system] ****", ""),
        ("TASK [deeplearning.aws.efs_mount : present | Mount the file system] ***", "efs_mount"),
        ("TASK [present | Install packages] ***", ""),
        ("PLAY [Make machines members] ***", None),
        ("ok: [i-0123456789abcdef0]", None),
    ],
)
def test_steps_are_roles(line: str, step: str | None) -> None:
    task = playbook.TASK.match(line)
    assert ((task["role"] or "") if task else None) == step


def test_variables_are_what_node_yml_takes() -> None:
    names = ("ip-10-0-0-5.ec2.internal", "10.0.0.5")
    variables = playbook.variables(SETTINGS, PARAMETERS, *names)
    expected = {"cluster": "red", "efs_mount": "/efs", "bundle": SHA256, "job_flow": ""}
    assert variables["node_cluster"] == expected
    variables = playbook.variables(SETTINGS, {**PARAMETERS, "job_flow": "j-1"}, *names)
    assert variables["node_cluster"] == {**expected, "job_flow": "j-1"}
    assert variables["framework_wheels"] == "/efs/data/wheels"
    assert variables["node_efs_tls"] is True and variables["ansible_become"] is False
    assert (variables["deeplearning_role"], variables["deeplearning_gpus"]) == ("worker", 0)
    assert (variables["deeplearning_private_name"], variables["deeplearning_private_address"]) == names


def test_its_output_is_logged_and_ends_with_the_failed_task(booted: Boot) -> None:
    steps: list[str] = []
    output = [
        "TASK [a : x] *\n",
        "ok: [i]\n",
        "\n",
        "TASK [y] *\n",
        "fatal: [i]\n",
        "PLAY RECAP ***\n",
        "i : ok=1\n",
    ]
    assert playbook.follow(output, steps.append) == ["TASK [y] *", "fatal: [i]"]
    assert steps == ["a", ""] and booted.log == "".join(output)


ANSIBLE = """
import json, os, sys

def main():
    print("TASK [red.blue.efs_mount : Mount it] ****")
    print(json.dumps(sys.argv[1:]))
    print(os.environ["ANSIBLE_COLLECTIONS_PATH"])
    return int(sys.argv[1] == "--version")"""


def bundle(folder: Path, program: str = ANSIBLE) -> Path:
    """A bundle with a program in the place of Ansible, which usually prints its arguments."""
    wheels = folder / "bundle/wheels"
    wheels.mkdir(parents=True)
    with zipfile.ZipFile(wheels / "ansible_core-2.19.14-py3-none-any.whl", "w") as file:
        for name in ("ansible/__init__.py", "ansible/cli/__init__.py", "ansible_test/huge.py"):
            file.writestr(name, "")
        file.writestr("ansible/cli/playbook.py", program)
    (folder / "bundle/boot.json").write_text(json.dumps(SETTINGS))
    return folder / "bundle"


@pytest.fixture
def quiet_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "defer_updates", lambda: None)
    monkeypatch.setattr(system, "find_python", lambda log: sys.executable)


@pytest.mark.usefixtures("quiet_system")
def test_a_configured_machine_goes_into_service(booted: Boot, tmp_path: Path) -> None:
    assert configuring.configure(booted.machine(), str(bundle(tmp_path))) == 0
    assert booted.aws.states() == [("configuring", "packages"), ("configuring", "efs_mount")]
    assert booted.aws.actions() == ["RecordLifecycleActionHeartbeat", "CompleteLifecycleActionCONTINUE"]
    assert (tmp_path / "configured").read_text() == f"{SHA256}\n"
    arguments = json.loads(next(line for line in booted.log.splitlines() if line.startswith("[")))
    assert arguments[:2] == ["-i", f"{INSTANCE},"]
    assert arguments[-1] == f"{tmp_path}/bundle/{contract.COLLECTION}/playbooks/node.yml"
    assert json.loads(Path(arguments[3][1:]).read_text())["node_hosts"] == "all"
    assert f"{tmp_path}/bundle/collections\n" in booted.log
    assert not (tmp_path / "bundle/python/ansible_test").exists()
    assert (tmp_path / "called").read_text() == "members report\n"
    assert not (tmp_path / "configuring").exists()


@pytest.mark.parametrize(("state", "reports"), [("ready", False), ("faulty", False), ("configuring", True)])
def test_the_last_report_is_that_of_the_node_program(booted: Boot, tmp_path: Path, state: str, reports: bool) -> None:
    booted.aws.objects[OWN_REPORT] = json.dumps({"state": state}).encode()
    configuring.confirm_report(booted.machine())
    assert (tmp_path / "called").exists() == reports


def test_a_report_that_cannot_be_read_is_written_again(booted: Boot, tmp_path: Path) -> None:
    booted.aws.objects[OWN_REPORT] = b"{"
    configuring.confirm_report(booted.machine())
    assert (tmp_path / "called").read_text() == "members report\n" and "the report cannot be read: " in booted.log


@pytest.mark.usefixtures("quiet_system")
def test_a_machine_whose_playbook_fails_is_given_back(booted: Boot, tmp_path: Path) -> None:
    assert configuring.configure(booted.machine(), str(bundle(tmp_path, ANSIBLE + " or 2"))) == 1
    assert booted.aws.states()[-1] == ("failed", "efs_mount")
    assert booted.aws.reports[-1]["log"][0].startswith("TASK [red.blue.efs_mount")
    assert booted.aws.actions()[-1] == "CompleteLifecycleActionABANDON"
    assert not (tmp_path / "configured").exists() and (tmp_path / "configuring").exists()


@pytest.mark.usefixtures("quiet_system")
def test_an_image_without_a_python_is_reported(booted: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_log: Callable[[str], None]) -> str:
        raise UserError("this image has no Python 3.11")

    monkeypatch.setattr(system, "find_python", refuse)
    assert configuring.configure(booted.machine(), str(bundle(tmp_path))) == 1
    assert booted.aws.reports[-1]["log"] == ["this image has no Python 3.11"]


@pytest.mark.usefixtures("quiet_system")
@pytest.mark.parametrize("refused", [False, True])
def test_a_master_takes_the_clusters_address(
    booted: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    monkeypatch.setitem(PARAMETERS, "address", "eipalloc-1")
    machine = booted.machine()
    if refused:
        booted.aws.errors = [(400, "InvalidAllocationID.NotFound", "There is none.")]
    configuring.associate_address(machine)
    if refused:
        assert "eipalloc-1 cannot be associated" in booted.log
    else:
        (call,) = booted.aws.calls
        assert (call["Action"], call["NetworkInterfaceId"], call["AllowReassociation"]) == (
            "AssociateAddress",
            "eni-1",
            "true",
        )


def test_a_worker_remembers_the_address_and_a_master_waits_for_aws(
    booted: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "MASTER_ADDRESS", str(tmp_path / "master-address"))
    monkeypatch.setitem(PARAMETERS, "address", "eipalloc-1")
    configuring.take_address(booted.machine())
    assert (tmp_path / "master-address").read_text() == "eipalloc-1" and booted.aws.calls == []

    monkeypatch.setitem(PARAMETERS, "role", "master")
    monkeypatch.setattr(configuring, "associate_address", lambda machine: None)
    booted.aws.errors = [(503, "", "")] * 3
    configuring.take_address(booted.machine())
    assert booted.aws.actions() == ["RecordLifecycleActionHeartbeat"] and booted.clock.slept == [0.5, 1, 2]


def test_heartbeats_are_sent_with_tasks_but_not_with_each(booted: Boot) -> None:
    progress = configuring.ReportedSteps(booted.machine())
    for _second in range(61):
        progress.begin("packages")
        booted.clock.sleep(1)
    assert booted.aws.actions() == ["RecordLifecycleActionHeartbeat"] * 3
    assert booted.aws.states() == [("configuring", "packages")]


def test_tasks_without_a_role_belong_to_the_step_before(booted: Boot) -> None:
    progress = configuring.ReportedSteps(booted.machine())
    for step in ("packages", "", "packages", "efs_mount", "", "packages"):
        progress.begin(step)
    assert progress.step == "packages"
    assert [step for _state, step in booted.aws.states()] == ["packages", "efs_mount", "packages"]
    assert [line.split()[-1] for line in booted.log.splitlines()] == ["packages", "efs_mount", "packages"]


def test_progress_that_cannot_be_reported_does_not_stop_the_machine(booted: Boot) -> None:
    booted.aws.errors = [(404, "NoSuchBucket", "")] * 2
    configuring.ReportedSteps(booted.machine()).begin("packages")
    assert "packages: HTTP 404 NoSuchBucket" in booted.log


# The hook


def failed_machines(booted: Boot, count: int, state: str = "failed", written: str = "") -> None:
    for number in range(count):
        key = f"members/{ROLE_ID}:i-{number:017x}/report.json"
        booted.aws.objects[key] = FAILED.replace(b"failed", state.encode())
        if written:
            booted.aws.written[key] = written


@pytest.mark.parametrize(
    ("others", "state", "written", "answer"),
    [
        (0, "failed", "", "ABANDON"),
        (contract.ATTEMPTS - 1, "failed", "", "ABANDON"),
        (contract.ATTEMPTS, "failed", "", "Heartbeat"),
        (40, "failed", "", "Heartbeat"),
        # Those that did not fail, or long ago, do not count.
        (7, "ready", "", "ABANDON"),
        (7, "failed", "2026-01-01T00:00:00.000Z", "ABANDON"),
    ],
)
def test_after_several_failures_a_machine_keeps_its_place(
    booted: Boot, monkeypatch: pytest.MonkeyPatch, others: int, state: str, written: str, answer: str
) -> None:
    failed_machines(booted, others, state, written)
    machine = booted.machine()
    monkeypatch.setattr(time, "sleep", lambda _seconds: setattr(booted.aws, "inactive", -1))
    machine.fail("efs_mount", ["no route"])
    assert booted.aws.actions()[0].endswith(answer)
    assert OWN_REPORT in booted.aws.objects


@pytest.mark.parametrize("body", [b"", b"[" * 60000, b'{"state": ["failed"]}', b"\xff", FAILED + b" " * 70000])
def test_malformed_reports_do_not_count(booted: Boot, body: bytes) -> None:
    for number in range(9):
        booted.aws.objects[f"members/{ROLE_ID}:i-{number:017x}/report.json"] = body
    assert booted.machine().count_failures() == 0


def test_failures_are_counted_in_the_clusters_own_bucket(booted: Boot) -> None:
    failed_machines(booted, 3)
    assert booted.machine().count_failures() == 3
    listed = [request for request in booted.aws.requests if "members/" not in request]
    assert set(listed) == {"GET "}


def test_failures_that_cannot_be_counted_do_not_buy_machines(booted: Boot) -> None:
    booted.aws.errors = [(404, "NoSuchBucket", ""), NO_ACTION]
    booted.machine().fail("efs_mount", [])
    assert booted.aws.requests[1:] == ["POST "] and "failures cannot be counted" in booted.log


def test_the_answer_waits_until_the_hook_does(booted: Boot) -> None:
    booted.aws.inactive = 5
    booted.machine().complete("CONTINUE")
    assert booted.aws.actions() == ["CompleteLifecycleActionCONTINUE"] * 6


def test_without_a_hook_a_machine_is_done_after_a_minute(booted: Boot) -> None:
    booted.aws.inactive = -1
    booted.machine().complete("CONTINUE")
    assert sum(booted.clock.slept) == first_stage.HOOK_ACTIVE_SECONDS
    assert "no lifecycle action waits for CONTINUE" in booted.log


def test_a_machine_of_emr_has_no_hook(booted: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARAMETERS, "group", "")
    booted.machine().complete("CONTINUE")
    failed_machines(booted, contract.ATTEMPTS)
    booted.machine().fail("efs_mount", ["no route"])
    configuring.ReportedSteps(booted.machine()).begin("packages")
    assert booted.aws.calls == [] and booted.clock.slept == []
    assert booted.aws.states() == [("failed", "efs_mount"), ("configuring", "packages")]


# The operating system


def executable(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("own", "installs", "expected"),
    [("[3, 12]", True, "python3"), ("[3, 9]", True, "python3.11"), ("[3, 9]", False, "")],
)
def test_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, installs: bool, expected: str) -> None:
    pythons = (executable(tmp_path / "python3", f"echo '{own}'"), str(tmp_path / "python3.11"))
    source = executable(tmp_path / "source", "echo '[3, 11]'")
    work = f"cp -p {source} {pythons[1]}" if installs else "echo 'no package python3.11' >&2; exit 1"
    installer = executable(tmp_path / "dnf", work)
    monkeypatch.setattr(system, "PYTHONS", pythons)
    monkeypatch.setattr(system, "INSTALLERS", {installer: (f"{installer} install",), "/no/apt-get": ("/no/apt-get",)})
    if expected:
        assert os.path.basename(system.find_python(print)) == expected
    else:
        with pytest.raises(UserError, match=r"no Python 3\.11 or newer, .*: no package python3\.11"):
            system.find_python(print)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        # Ubuntu 22.04 with its package, Ubuntu 24.04, Amazon Linux 2023 and its images for deep learning.
        ({"python3": 10, "python3.10": 10, "python3.11": 11}, "python3.11"),
        ({"python3": 12, "python3.12": 12}, "python3"),
        ({"python3": 9, "python3.9": 9, "python3.11": 11}, "python3.11"),
        ({"python3": 9, "python3.9": 9, "python3.11": 11, "python3.12": 12}, "python3.12"),
        ({"python3": 9, "python3.12": 12}, "python3.12"),
    ],
)
def test_no_python_is_installed_where_one_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: dict[str, int], expected: str
) -> None:
    for name, minor in versions.items():
        executable(tmp_path / name, f"echo '[3, {minor}]'")
    monkeypatch.setattr(system, "PYTHONS", [str(tmp_path / os.path.basename(path)) for path in system.PYTHONS])
    monkeypatch.setattr(system, "INSTALLERS", {})
    monkeypatch.setattr(time, "sleep", pytest.fail)
    assert os.path.basename(system.find_python(print)) == expected


def test_a_package_manager_asks_nothing_and_all_its_commands_run_until_there_is_a_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", "kept")
    monkeypatch.delenv("DEBIAN_FRONTEND", raising=False)
    installer = executable(tmp_path / "apt-get", f'echo "$1 $DEBIAN_FRONTEND $OWN" >> {tmp_path}/called; echo no')
    monkeypatch.setattr(system, "PYTHONS", (str(tmp_path / "python3"),))
    monkeypatch.setattr(system, "INSTALLERS", {installer: (f"{installer} update", f"{installer} install")})
    with pytest.raises(UserError, match="no Python 3.11 or newer, and the package python3.11 is not installed: no$"):
        system.find_python(print)
    assert (tmp_path / "called").read_text() == "update noninteractive kept\ninstall noninteractive kept\n"
    monkeypatch.setattr(system, "INSTALLERS", {})
    with pytest.raises(UserError, match="is not installed: its package manager is not known"):
        system.find_python(print)


LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)"
FROZEN = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 911 (unattended-upgr)"
UNREACHED = (
    "W: Failed to fetch http://us-east-1.ec2.archive.ubuntu.com/ubuntu/dists/jammy/InRelease  Temporary failure "
    "resolving 'us-east-1.ec2.archive.ubuntu.com'"
)
ABSENT = "E: Unable to locate package python3.11"
OTHER_DNF = "Waiting for process with pid 812 to finish."
NO_MIRROR = "Error: Failed to download metadata for repo 'amazonlinux': Cannot download repomd.xml"


@pytest.mark.parametrize(
    ("update", "install", "cause"),
    [
        (LOCKED, ABSENT, "another process holds the package manager's lock"),
        ("", FROZEN, "another process holds the package manager's lock"),
        (UNREACHED, ABSENT, "the network or the package mirror does not answer"),
        ("", OTHER_DNF, "another process holds the package manager's lock"),
        ("", NO_MIRROR, "the network or the package mirror does not answer"),
        ("", ABSENT, ""),
    ],
)
@pytest.mark.parametrize("ends", [False, True])
def test_a_package_waits_for_a_lock_and_for_the_network(
    booted: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: str, install: str, cause: str, ends: bool
) -> None:
    python = tmp_path / "python3.11"
    source = executable(tmp_path / "source", "echo '[3, 11]'")
    called = tmp_path / "calls"
    texts = {"update": update, "install": install}
    for name, text in texts.items():
        (tmp_path / name).write_text(f"{text}\n")
    work = f'echo x >> {called}; cat {tmp_path}/$1; [ "$1" = update ] || exit 100'
    if ends:
        work = (
            f'if [ "$1" = install ] && [ "$(wc -l < {called})" -ge 4 ]; then cp -p {source} {python}; exit; fi; {work}'
        )
    installer = executable(tmp_path / "apt-get", work)
    monkeypatch.setattr(system, "PYTHONS", (str(python),))
    monkeypatch.setattr(system, "INSTALLERS", {installer: (f"{installer} update", f"{installer} install")})
    monkeypatch.setattr(system, "PAUSE_SECONDS", 5 if ends else 100)
    if cause and ends:
        assert system.find_python(first_stage.log) == str(python)
        assert booted.clock.slept == [5, 5] and f"{cause}: " in booted.log
        return
    with pytest.raises(UserError) as raised:
        system.find_python(first_stage.log)
    last = update or install
    if cause:
        assert str(raised.value).endswith(f" is not installed within 600 s, as {cause}: {last}")
        assert 400 <= sum(booted.clock.slept) < contract.NETWORK_SECONDS
    else:
        assert str(raised.value).endswith(f" is not installed: {last}") and booted.clock.slept == []


def test_package_managers_wait_for_locks_and_try_mirrors_again() -> None:
    for installer, commands in system.INSTALLERS.items():
        for command in commands:
            if command.startswith("apt-get"):
                assert "DPkg::Lock::Timeout=" in command and "Acquire::Retries=" in command
            elif installer.endswith("dnf"):
                assert "--setopt=retries=" in command


@pytest.mark.parametrize(("version", "fits"), [("[3, 10]", False), ("[3, 11]", True), ("[4, 0]", True)])
def test_the_systems_own_python_is_used_from_3_11_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fits: bool
) -> None:
    python = executable(tmp_path / "python3", f"[ \"$1 $2\" = '-I -c' ] && echo '{version}'")
    monkeypatch.setattr(system, "PYTHONS", (python, str(tmp_path / "python3.11")))
    monkeypatch.setattr(system, "INSTALLERS", {})
    if fits:
        assert system.find_python(print) == python
    else:
        with pytest.raises(UserError, match="no Python"):
            system.find_python(print)


@pytest.mark.usefixtures("quiet_system")
def test_ansible_runs_with_an_environment_of_its_own(
    booted: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_STRATEGY", "free")
    environment = playbook.environment("/bundle")
    assert "ANSIBLE_STRATEGY" not in environment and environment["PATH"] == os.environ["PATH"]
    assert environment["ANSIBLE_COLLECTIONS_PATH"] == "/bundle/collections"
    # No package asks anything, and none restarts services.
    assert (environment["DEBIAN_FRONTEND"], environment["NEEDRESTART_SUSPEND"]) == ("noninteractive", "1")
    program = "import json, os, sys\n\ndef main():\n    print(json.dumps([os.getcwd(), dict(os.environ)]))\n"
    playbook.play("node.yml", booted.machine(), str(bundle(tmp_path, program)), {"a": 1}, [].append)
    folder, own = json.loads(booted.log)
    assert folder == str(tmp_path / "bundle")
    assert {**playbook.environment(folder), "LC_CTYPE": own.get("LC_CTYPE")} == {"LC_CTYPE": None, **own}
    assert json.loads((tmp_path / "bundle/variables.json").read_text()) == {"a": 1}


def test_updates_wait_until_the_machine_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(system, "DROP_INS", str(tmp_path))
    monkeypatch.setattr(system.programs, "run", lambda *words: ran.append(words))
    system.defer_updates()
    system.defer_updates()
    drop_in = (tmp_path / "apt-daily-upgrade.service.d/deeplearning.conf").read_text()
    assert drop_in == "[Unit]\nConditionPathExists=/var/lib/deeplearning/configured\n"
    assert ran == [("systemctl", "daemon-reload")]


# The source of an image


@pytest.fixture
def baked(booted: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine's files, with what belongs to it alone."""
    root = tmp_path / "root"
    for path in (
        *baking.OWN,
        *OF_THE_MACHINE,
        "/var/log/journal/a",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssh/sshd_config",
    ):
        file = root / path.replace("*", "x").lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("own")
    monkeypatch.setitem(PARAMETERS, "group", "")
    monkeypatch.setitem(PARAMETERS, "frameworks", ["pytorch"])
    monkeypatch.setattr(baking, "OWN", tuple(f"{root}{path}" for path in baking.OWN))
    monkeypatch.setattr(baking, "HOST_KEYS", f"{root}{baking.HOST_KEYS}")
    monkeypatch.setattr(baking, "LOGS", f"{root}{baking.LOGS}")
    called = tmp_path / "called"

    def record(*words: str) -> None:
        with called.open("a") as file:
            file.write(" ".join(words) + "\n")
            # The service writes the seed when it is stopped.
            if words[-1] == "systemd-random-seed.service":
                (root / "var/lib/systemd/random-seed").write_text("own")

    monkeypatch.setattr(baking.programs, "run", record)
    return root


@pytest.mark.usefixtures("quiet_system")
def test_an_image_has_nothing_of_the_machine_that_it_is_made_of(booted: Boot, baked: Path, tmp_path: Path) -> None:
    assert baking.bake(booted.machine(), str(bundle(tmp_path))) == 0
    assert booted.aws.states()[-1] == ("ready", "clean") and booted.aws.actions() == []
    assert [str(path.relative_to(baked)) for path in sorted(baked.rglob("*")) if path.is_file()] == [
        "etc/machine-id",
        "etc/ssh/sshd_config",
    ]
    assert (baked / "etc/machine-id").read_text() == "" and (baked / "var/log/journal").is_dir()
    *stopped, last = (tmp_path / "called").read_text().splitlines()
    assert last == "systemctl --no-block poweroff" and "systemctl stop systemd-random-seed.service" in stopped
    arguments = json.loads(next(line for line in booted.log.splitlines() if line.startswith("[")))
    assert arguments[-1].endswith("/playbooks/bake.yml")
    assert json.loads(Path(arguments[3][1:]).read_text())["bake_frameworks"] == ["pytorch"]


@pytest.mark.usefixtures("quiet_system")
def test_a_machine_whose_frameworks_fail_reports_it_and_goes_on_running(
    booted: Boot, baked: Path, tmp_path: Path
) -> None:
    assert baking.bake(booted.machine(), str(bundle(tmp_path, ANSIBLE + " or 2"))) == 1
    assert booted.aws.states()[-1] == ("failed", "efs_mount")
    assert (baked / "etc/ssh/ssh_host_ed25519_key").exists() and not (tmp_path / "called").exists()
