"""What the node-side roles take for each family of systems, those included that no machine here runs.

Ubuntu's family is Debian, Amazon Linux's is RedHat.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import open_mpi, paths
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.frameworks import FRAMEWORKS, RECORDS
from ansible_collections.deeplearning.aws.plugins.module_utils.node import python_env
from ansible_collections.deeplearning.aws.plugins.modules import framework_env, managed_files
from ansible_collections.deeplearning.aws.plugins.plugin_utils import untrusted
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers

from tests.unit.modules import run_node_module
from tests.unit.roles.roles_kit import ROLES, monitored, value


@pytest.mark.parametrize(
    ("existing", "runs"),
    [
        ({"version", "usr"}, True),
        ({"version", "etc"}, True),
        ({"version"}, False),
        # As on a machine without GPUs, whose image has the driver.
        ({"usr", "etc"}, False),
    ],
)
def test_the_persistence_daemon_runs_where_the_driver_and_its_unit_are(existing: set[str], runs: bool) -> None:
    tasks = DataLoader().load_from_file(str(ROLES / "cluster_env/tasks/present.yml"), trusted_as_template=True)
    (check, enable) = (task for task in tasks if "NVIDIA" in task["name"])
    results = [{"stat": {"exists": bool(existing & set(path.split("/")))}} for path in check["loop"]]
    templar = Templar(None, {"__cluster_env_nvidia": {"results": results}, **enable["vars"]})
    assert templar.evaluate_conditional(enable["when"]) is runs
    assert enable["ansible.builtin.systemd_service"] == {
        "name": "nvidia-persistenced.service",
        "enabled": True,
        "state": "started",
    }


@pytest.mark.parametrize(("family", "service"), [("Debian", "ssh"), ("RedHat", "sshd")])
def test_sshd_is_reloaded_under_its_name(family: str, service: str) -> None:
    assert value("agent_forwarding", "__agent_forwarding_system.service", family) == service


def test_sshd_is_validated_although_its_folder_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Ubuntu 24.04, before the first login."""
    monkeypatch.setattr(managed_files, "LOCK", str(tmp_path / "lock"))
    folder, sshd, file = tmp_path / "run/sshd", tmp_path / "sshd", tmp_path / "50-deeplearning.conf"
    folder.parent.mkdir()
    sshd.write_text(
        f'#!/bin/sh\n[ "$1" = -t ] && [ -d {folder} ] && exit\n'
        f"echo 'Missing privilege separation directory: {folder}' >&2\nexit 255\n",
        encoding="utf-8",
    )
    sshd.chmod(0o755)
    (task,) = DataLoader().load_from_file(str(ROLES / "agent_forwarding/tasks/main.yml"), trusted_as_template=True)
    template = task["deeplearning.aws.managed_files"]["validate"]
    validate = value("agent_forwarding", template.strip("{} ") if "{{" in template else repr(template), "Debian")
    validate = validate.replace("/run/sshd", str(folder)).replace("/usr/sbin/sshd", str(sshd))
    files = [{"path": str(file), "content": "x\n"}]
    first = run_node_module(capsys, "managed_files", files=files, validate=validate)
    assert not first.get("failed") and file.read_text(encoding="utf-8") == "x\n", first
    assert folder.stat().st_mode & 0o7777 == 0o755
    assert not run_node_module(capsys, "managed_files", files=files, validate=validate)["changed"]


@pytest.mark.parametrize(("family", "modes"), [("Debian", {"/usr/lib/openssh/ssh-keysign": "4755"}), ("RedHat", {})])
def test_keysign_runs_as_root_where_no_group_allows_it(family: str, modes: dict[str, str]) -> None:
    present, absent = (
        value("agent_forwarding", f"__agent_forwarding_files.{state}", family) for state in ("present", "absent")
    )
    assert {item["path"]: item["mode"] for item in present if "content" not in item} == modes
    assert {item["path"] for item in present if "content" in item} == {item["path"] for item in absent}
    assert {item["state"] for item in absent} == {"absent"}


@pytest.mark.parametrize(
    ("family", "distribution", "tls", "package"),
    [
        ("Debian", "Ubuntu", False, "nfs-common"),
        ("RedHat", "Amazon", False, "nfs-utils"),
        ("Debian", "Ubuntu", True, ""),
        ("RedHat", "Rocky", True, ""),
        ("RedHat", "Amazon", True, "amazon-efs-utils"),
    ],
)
def test_the_mount_helper_comes_from_its_package(family: str, distribution: str, tls: bool, package: str) -> None:
    facts = {"os_family": family, "distribution": distribution}
    assert value("efs_mount", "__efs_mount_package", family, ansible_facts=facts, efs_mount_tls=tls) == package


@pytest.mark.parametrize(("distribution", "refused"), [("Ubuntu", True), ("Amazon", False)])
def test_tls_is_refused_in_one_sentence_without_a_mount_helper(distribution: str, refused: bool) -> None:
    facts = {"os_family": "Debian", "distribution": distribution}
    loader = DataLoader()
    refusal = loader.load_from_file(str(ROLES / "efs_mount/tasks/helper.yml"), trusted_as_template=True)[0]
    variables = {"ansible_facts": facts, "efs_mount_tls": True, "inventory_hostname": "deeplearning-worker2"}
    assert value("efs_mount", refusal["when"], "Debian", **variables) == refused
    message = Templar(loader, variables | {"__efs_mount_desired": {"helper": "/sbin/mount.efs"}}).template(
        refusal["ansible.builtin.fail"]["msg"]
    )
    assert message.startswith(
        f"deeplearning-worker2: /sbin/mount.efs is missing and {distribution} has no package of it: boot an image that "
        "contains amazon-efs-utils"
    )


@pytest.mark.parametrize(("variables", "tls"), [({}, False), ({"node_efs_tls": True}, True)])
def test_nodes_mount_with_tls_if_the_settings_require_it(variables: dict[str, Any], tls: bool) -> None:
    loader = DataLoader()
    (play,) = loader.load_from_file(str(ROLES.parent / "playbooks/node.yml"), trusted_as_template=True)
    (task,) = [task for task in play["tasks"] if task["name"] == "Mount the shared file system"]
    assert Templar(loader, variables).template(task["vars"]["efs_mount_tls"]) is tls


def test_with_tls_the_file_system_is_mounted_by_its_id() -> None:
    name = "fs-0123456789abcdef0.efs.us-east-1.amazonaws.com"
    sources = {
        tls: value("efs_mount", "__efs_mount_desired", "RedHat", efs_mount_tls=tls, efs_mount_name=name)
        for tls in (False, True)
    }
    assert (sources[False]["fstype"], sources[False]["source"]) == ("nfs4", f"{name}:/")
    assert (sources[True]["fstype"], sources[True]["source"]) == ("efs", "fs-0123456789abcdef0:/")
    assert "tls" in sources[True]["options"].split(",")


GENERATOR = Path("/usr/lib/systemd/system-generators/systemd-fstab-generator")


@pytest.mark.skipif(not GENERATOR.exists(), reason="needs systemd")
@pytest.mark.parametrize("tls", [False, True])
def test_no_login_waits_for_the_file_system(tls: bool, tmp_path: Path) -> None:
    """systemd-user-sessions.service, which allows logins, is ordered after remote-fs.target."""
    name = "fs-0123456789abcdef0.efs.us-east-1.amazonaws.com"
    desired = value("efs_mount", "__efs_mount_desired", "RedHat", efs_mount_tls=tls, efs_mount_name=name)
    fstab = tmp_path / "fstab"
    fstab.write_text(f"{desired['source']} /efs {desired['fstype']} {desired['options']} 0 0\n")
    subprocess.run([GENERATOR, *[tmp_path] * 3], env={"SYSTEMD_FSTAB": str(fstab)}, check=True)
    unit = (tmp_path / "efs.mount").read_text()
    assert "Before=" not in unit and "TimeoutSec=30s\n" in unit
    # It is mounted at boot all the same, and its failure does not stop the target.
    assert (tmp_path / "remote-fs.target.wants/efs.mount").is_symlink()


@pytest.mark.parametrize(("family", "mpi"), [("Debian", "openmpi-bin"), ("RedHat", "openmpi")])
@pytest.mark.parametrize("present", [(), (0,), (1,), (0, 1)])
def test_packages_have_the_names_of_the_system(family: str, mpi: str, present: tuple[int, ...]) -> None:
    """And no second Open MPI is installed next to those of AWS's images with EFA, 4 or 5."""
    checked = {"results": [{"stat": {"exists": number in present}} for number in range(2)]}
    packages = value("cluster_env", "__cluster_env_wanted", family, __cluster_env_mpirun=checked)
    assert sorted(packages) == sorted(["git", "wget", "rsync", "tar", "python3-boto3", *([] if present else [mpi])])
    assert value("cluster_env", "__cluster_env_amazons_mpi", family) == list(open_mpi.AMAZON_FOLDERS)


def test_other_roles_name_packages_without_facts() -> None:
    """train.yml installs environments, and gathers none."""
    own = value("cluster_env", "__cluster_env_wanted", "", ansible_facts={}, cluster_env_packages=["libgfortran5"])
    assert own == ["libgfortran5"]


@pytest.mark.parametrize(
    ("server", "services"),
    [(False, ["prometheus-node-exporter"]), (True, ["prometheus-node-exporter", "prometheus"])],
)
def test_prometheus_runs_on_the_master_alone_and_nothing_listens_on_all_addresses(
    server: bool, services: list[str]
) -> None:
    assert monitored("__monitoring_services", server) == services
    files = {item["path"]: item["content"] for item in monitored("__monitoring_files", server)}
    assert list(files) == [f"/etc/default/{service}" for service in services]
    assert files["/etc/default/prometheus-node-exporter"] == 'ARGS="--web.listen-address=10.0.0.5:9100"\n'
    if server:
        arguments = monitored("__monitoring_arguments", server)["prometheus"].split()
        assert shlex.split(files["/etc/default/prometheus"].partition("=")[2]) == [" ".join(arguments)]
        assert f"--config.file={paths.PROMETHEUS}" in arguments
        assert "--web.listen-address=127.0.0.1:9090" in arguments
    configured = {item["path"]: Path(item["source"]) for item in monitored("__monitoring_configuration", server)}
    assert set(configured) == ({paths.PROMETHEUS, paths.ALERTS} if server else set())
    assert all(source.is_file() for source in configured.values())


@pytest.mark.parametrize(("codes", "runs"), [([0, 0], True), ([0, 1], False), ([1, 0], True)])
def test_prometheus_is_reloaded_only_if_it_runs_with_its_arguments(codes: list[int], runs: bool) -> None:
    checked = {"results": [{"rc": code} for code in codes]}
    assert monitored("__monitoring_runs_server", True, __monitoring_checked=checked) is runs
    assert monitored("__monitoring_runs_server", False, __monitoring_checked=checked) is False


@pytest.mark.parametrize(("variables", "state"), [({}, "absent"), ({"monitoring": True}, "present")])
def test_nodes_are_watched_if_the_settings_say_so(variables: dict[str, Any], state: str) -> None:
    loader = DataLoader()
    (play,) = loader.load_from_file(str(ROLES.parent / "playbooks/node.yml"), trusted_as_template=True)
    (task,) = [task for task in play["tasks"] if task["name"].startswith("Watch the machine")]
    known = {"node_cluster": variables, "deeplearning_role": "master", "deeplearning_private_address": "10.0.0.5"}
    values = {key: Templar(loader, known).template(text) for key, text in task["vars"].items()}
    expected = {"monitoring_state": state, "monitoring_server": True, "monitoring_address": "10.0.0.5"}
    assert values == expected


AMAZON_PYTHONS = {"python3": "3.9", "python3.11": "3.11", "python3.12": "3.12"}

# What the inspection of a machine returns: a system without a suitable Python has a problem.
NO_PYTHON = {"problem": "mxnet needs Python 3.10 to 3.11", "python": "", "can_create_environments": False}
UBUNTU_22_04 = {"system": "ubuntu", "problem": "", "python": "3.10", "can_create_environments": False}
UBUNTU_24_04 = {"system": "ubuntu", **NO_PYTHON}
AMAZON_2023 = {"system": "amzn", **NO_PYTHON}


@pytest.mark.parametrize(
    ("inspected", "framework", "packages"),
    [
        (UBUNTU_22_04, "mxnet", {"libgomp1", "libquadmath0", "python3.10-venv"}),
        (UBUNTU_22_04, "pytorch", {"python3.10-venv"}),
        # A second Python, for a framework that does not support the system's own.
        (UBUNTU_22_04 | {"python": "3.11"}, "pytorch", {"python3.11-venv"}),
        (UBUNTU_22_04 | {"can_create_environments": True}, "pytorch", set()),
        (UBUNTU_24_04, "tensorpack", set()),
        # Its own Python is 3.9. The package python3.11 creates environments.
        (AMAZON_2023, "mxnet", {"libgomp", "libquadmath", "python3.11"}),
        (AMAZON_2023, "pytorch", {"python3.11"}),
        (AMAZON_2023 | {"problem": "", "can_create_environments": True}, "mxnet", {"libgomp", "libquadmath"}),
        ({"system": "rocky", "problem": "", "can_create_environments": False}, "pytorch", set()),
    ],
)
def test_an_environment_needs_packages_of_the_system(
    inspected: dict[str, Any], framework: str, packages: set[str]
) -> None:
    libraries = list(RECORDS[framework].libraries.get(inspected["system"], ()))
    variables = {"__framework_inspected": {**inspected, "libraries": libraries}}
    assert set(value("framework", "__framework_packages", "", **variables)) == packages


@pytest.mark.parametrize(("system", "refused", "recommends"), [("ubuntu", True, False), ("amzn", False, True)])
def test_a_system_without_a_suitable_python_is_refused_unless_it_has_a_package_of_one(
    system: str, refused: bool, recommends: bool
) -> None:
    (refusal, *_) = DataLoader().load_from_file(str(ROLES / "framework/tasks/install.yml"), trusted_as_template=True)
    variables = {"__framework_inspected": {"system": system, "problem": "mxnet needs Python 3.10 to 3.11"}}
    assert bool(value("framework", refusal["when"], "", **variables)) is refused
    # dnf has no such option.
    assert value("framework", "__framework_recommends", "", **variables) is recommends


AMAZON, DEBIAN = ["gcc-c++", "make", "openmpi-devel"], ["g++", "make", "libopenmpi-dev"]


@pytest.mark.parametrize(
    ("system", "pythons", "build"),
    [
        # Amazon Linux 2023 with the package that the role installs, and as it is in images for deep learning.
        ("amzn", {"python3": "3.9", "python3.11": "3.11"}, [*AMAZON, "python3.11-devel"]),
        ("amzn", AMAZON_PYTHONS, [*AMAZON, "python3.11-devel"]),
        ("ubuntu", {"python3": "3.10", "python3.11": "3.11"}, [*DEBIAN, "python3.10-dev"]),
        ("ubuntu", {"python3": "3.12", "python3.11": "3.11"}, [*DEBIAN, "python3.11-dev"]),
        ("debian", {"python3": "3.11"}, [*DEBIAN, "python3.11-dev"]),
    ],
)
def test_horovod_is_built_with_the_headers_of_the_environments_python(
    system: str,
    pythons: dict[str, str],
    build: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, version in pythons.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(python_env, "SYSTEM_FOLDERS", (tmp_path,))
    monkeypatch.setattr(python_env, "system", lambda: (system, system))
    environment = python_env.environment_of("tensorpack", {"cpu": "", "gpu": ""}, folder=tmp_path / "env")
    before = framework_env.inspect(environment, {"source": ""})
    # What the environment's marker says of it later.
    marker = {"requirements_sha256": environment.digest, "python": f"{before['python']}.7"}
    environment.python.parent.mkdir(parents=True)
    environment.python.touch()
    python_env.write_marker(environment, marker)
    after = framework_env.inspect(environment, {"source": ""})
    assert after["python"] == before["python"]
    variables = {"__framework_inspected": before, "__framework_environment": after}
    assert sorted(value("framework", "__framework_system.build", "", **variables)) == sorted(build)
    monkeypatch.setattr(open_mpi, "AMAZON_FOLDERS", (str(tmp_path / "amazon"),))
    (tmp_path / "amazon").mkdir()
    (tmp_path / "amazon/mpirun").touch()
    variables["__framework_environment"] = framework_env.inspect(environment, {"source": ""})
    left = value("framework", "__framework_system.build", "", **variables)
    assert sorted(left) == sorted(set(build) - {"libopenmpi-dev", "openmpi-devel"})


def test_every_unit_is_installed_and_the_master_alone_publishes() -> None:
    variables = {"cluster_env_cluster": {}, "cluster_env_role": "worker"}
    sources = {item["source"] for item in value("cluster_env", "__cluster_env_program", "Debian", **variables)}
    units = {str(path.resolve()) for path in (ROLES.parent / "files/node/units").iterdir()}
    assert units <= {str(Path(source).resolve()) for source in sources}
    timers = value("cluster_env", "__cluster_env_timers", "Debian", **variables)
    assert set(timers["master"]) - set(timers["worker"]) == {"deeplearning-publish.timer", "deeplearning-recover.timer"}
    # The role monitoring starts this one.
    of_monitoring = {"deeplearning-metrics.timer"}
    assert {*timers["master"], *of_monitoring} == {Path(unit).name for unit in units if unit.endswith(".timer")}


@pytest.mark.parametrize(("framework", "state"), [(None, "absent"), ("pytorch", "present")])
def test_python_is_that_of_the_default_framework(framework: str | None, state: str) -> None:
    commands = value(
        "cluster_env", "__cluster_env_commands", "Debian", cluster_env_cluster={"default_framework": framework}
    )
    assert {item["path"]: item["state"] for item in commands} == {
        "/usr/local/bin/python": state,
        "/usr/local/bin/tensorboard": state,
        "/etc/profile.d/deeplearning-framework.sh": state,
    }
    # A text that named the framework would not be removed with another one.
    assert not any(name in item["content"] for item in commands for name in FRAMEWORKS)


@pytest.mark.parametrize(
    ("framework", "complete", "user", "python"),
    [
        ("pytorch", True, 1000, "pytorch"),
        ("pytorch", True, 0, ""),
        ("pytorch", False, 1000, ""),
        (None, True, 1000, ""),
    ],
)
def test_python3_in_login_shells_is_that_of_the_default_framework(
    framework: str | None, complete: bool, user: int, python: str, tmp_path: Path
) -> None:
    record = {"cluster": "red", "default_framework": framework, "efs_mount": "/efs"}
    (tmp_path / "cluster.json").write_text(json.dumps(record))
    programs = tmp_path / "env/pytorch/bin"
    programs.mkdir(parents=True)
    (programs / "python3").write_text("#!/bin/sh\n")
    (programs / "python3").chmod(0o755)
    if complete:
        (tmp_path / "env/pytorch/.deeplearning.json").touch()
    text = value("cluster_env", "__cluster_env_profile", "Debian", cluster_env_cluster=record)
    text = text.replace("/etc/deeplearning/", f"{tmp_path}/").replace("/opt/deeplearning/env", f"{tmp_path}/env")
    shell = f"id() {{ echo {user}; }}\n{text}command -v python3; echo ${{__framework-unset}}"
    done = subprocess.run(["sh", "-euc", shell], capture_output=True, text=True, check=True)
    interpreter, left = done.stdout.split()
    assert (interpreter == f"{programs}/python3") == bool(python) and left == "unset"


UNFINISHED = {"frameworks": [{"framework": "mxnet"}, {"framework": "pytorch"}]}


@pytest.mark.parametrize(
    ("default", "unfinished", "expected"),
    [
        (None, None, []),
        (None, {"frameworks": []}, []),
        ("tensorflow", None, ["tensorflow"]),
        (None, UNFINISHED, ["mxnet", "pytorch"]),
        ("tensorflow", UNFINISHED, ["tensorflow", "mxnet", "pytorch"]),
        ("pytorch", UNFINISHED, ["pytorch", "mxnet"]),
    ],
)
def test_a_machine_gets_the_frameworks_of_unfinished_runs(
    default: str | None, unfinished: dict[str, Any] | None, expected: list[str]
) -> None:
    loader = DataLoader()
    (play,) = loader.load_from_file(str(ROLES.parent / "playbooks/node.yml"), trusted_as_template=True)
    (task,) = [task for task in play["tasks"] if task["name"].startswith("Install the default framework")]
    # In check mode the command does not run.
    answer = {"answer": answers.ANSWERS["run frameworks"](unfinished)} if unfinished else {"skipped": True}
    variables = {"node_cluster": {"default_framework": default}, "__node_unfinished": answer, **task["vars"]}
    assert Templar(loader, variables).template(task["loop"]) == expected


@pytest.mark.parametrize(
    ("inspected", "runs", "kept"),
    [
        # Other pins or sources, or a switch of the sources that was interrupted.
        ({"usable": True}, ["r1"], True),
        ({"usable": True}, ["r1", "r2"], True),
        ({"usable": True}, [], False),
        # A new machine, or one whose TensorPack lacks Horovod.
        ({"usable": False}, ["r1"], False),
        ({"usable": True, "ready": True}, ["r1"], False),
    ],
)
def test_an_environment_that_a_run_uses_is_kept_and_the_run_named(
    inspected: dict[str, bool], runs: list[str], kept: bool
) -> None:
    tasks = yaml.safe_load((ROLES / "framework/tasks/present.yml").read_text())
    _inspect, report, install = tasks
    variables = {
        "__framework_inspected": {"ready": False, **inspected},
        "framework_runs": runs,
        "framework_name": "pytorch",
    }
    is_ready = inspected.get("ready", False)
    for task, expected in ((report, kept), (install, not kept and not is_ready)):
        assert value("framework", task["when"], "Debian", **variables) is expected
    if kept:
        message = Templar(None, variables).template(trust_as_template(report["ansible.builtin.debug"]["msg"]))
        assert message.startswith("The environment of pytorch stays as it is, with other packages or sources")
        words = f"{', '.join(runs)} {'uses' if len(runs) == 1 else 'use'} it. Run this playbook again"
        assert f"because {words}" in message


@pytest.mark.parametrize(
    ("framework", "listed", "runs"),
    [
        ("mxnet", [{"framework": "mxnet", "runs": ["r1", "r2"]}], ["r1", "r2"]),
        ("pytorch", [{"framework": "mxnet", "runs": ["r1"]}], []),
        # A program of an earlier version does not name them, and says more of them.
        ("mxnet", [{"framework": "mxnet", "horovod": False}], []),
    ],
)
def test_the_runs_that_use_an_environment(framework: str, listed: list[dict[str, Any]], runs: list[str]) -> None:
    loader = DataLoader()
    plays = {
        name: loader.load_from_file(str(ROLES.parent / f"playbooks/{name}.yml"), trusted_as_template=True)
        for name in ("node", "train")
    }
    (task,) = [task for task in plays["node"][0]["tasks"] if task["name"].startswith("Install the default framework")]
    answer = {"answer": answers.ANSWERS["run frameworks"]({"frameworks": listed})}
    # In check mode the task is skipped.
    for unfinished, used in ((answer, runs), ({"skipped": True}, [])):
        templar = Templar(loader, {"__node_unfinished": unfinished, "__framework": framework, **task["vars"]})
        assert templar.template(task["vars"]["__used_by"]) == used
    (prepare,) = [play for play in plays["train"] if play["name"] == "Prepare the nodes"]
    variables = {"train_unfinished": answer, "__framework": framework}
    assert Templar(loader, variables).template(prepare["vars"]["__used_by"]) == runs


@pytest.mark.parametrize(
    ("listed", "processor"),
    [
        ([{"framework": "mxnet", "runs": ["r1"], "processor": True}], True),
        ([{"framework": "mxnet", "runs": ["r1"], "processor": False}], False),
        ([{"framework": "pytorch", "runs": ["r1"], "processor": True}], False),
        ([], False),
        # A program of an earlier version.
        ([{"framework": "mxnet", "runs": ["r1"]}], False),
    ],
)
def test_a_machine_that_joins_has_the_packages_that_the_runs_train_with(
    listed: list[dict[str, Any]], processor: bool
) -> None:
    """On a machine with GPUs those for processors, if its runs train on the processor."""
    loader = DataLoader()
    playbooks = ROLES.parent / "playbooks"
    (play,) = loader.load_from_file(str(playbooks / "node.yml"), trusted_as_template=True)
    (loop,) = [task for task in play["tasks"] if task["name"].startswith("Install the default framework")]
    (role,) = loader.load_from_file(str(playbooks / "tasks/node/framework.yml"), trusted_as_template=True)
    answer = {"answer": answers.ANSWERS["run frameworks"]({"frameworks": listed})}
    variables = {"__framework": "mxnet", "__node_unfinished": answer, **loop["vars"], **role["vars"]}
    assert Templar(loader, variables).template(role["vars"]["framework_processor"]) is processor


@pytest.mark.parametrize(("pushed", "builds"), [({}, False), ({"node_builds": True}, True)])
def test_a_machine_that_configures_itself_does_not_build_horovod(pushed: dict[str, bool], builds: bool) -> None:
    loader = DataLoader()
    playbooks = ROLES.parent / "playbooks"
    (play,) = loader.load_from_file(str(playbooks / "node.yml"), trusted_as_template=True)
    (loop,) = [task for task in play["tasks"] if task["name"].startswith("Install the default framework")]
    (role,) = loader.load_from_file(str(playbooks / "tasks/node/framework.yml"), trusted_as_template=True)
    variables = {
        **loop["vars"],
        "__framework": "tensorpack",
        "node_cluster": {"efs_mount": "/efs", "default_framework": None},
        **pushed,
        **role["vars"],
    }
    templar = Templar(loader, variables)
    assert templar.template(role["vars"]["framework_horovod_build"]) is builds
    assert templar.template(role["vars"]["framework_horovod_wheels"]) == "/efs/.deeplearning/wheels"


@pytest.mark.parametrize("playbook", ["bake", "node", "train"])
def test_who_includes_the_tasks_of_a_framework_sets_their_variables(playbook: str) -> None:
    text = (ROLES.parent / f"playbooks/{playbook}.yml").read_text()
    assert "tasks/node/framework.yml" in text
    for name in ("__framework", "__wheels", "__builds", "__used_by"):
        assert f" {name}" in text, name


def test_pages_behind_a_tunnel_are_opened_by_a_name_of_the_clusters_own() -> None:
    """Pages at localhost share their cookies, whatever their port."""
    loader = DataLoader()
    playbooks = ROLES.parent / "playbooks"
    (task,) = loader.load_from_file(str(playbooks / "tasks/tunnel.yml"), trusted_as_template=True)
    play = loader.load_from_file(str(playbooks / "status_page.yml"), trusted_as_template=True)[-1]
    (imported,) = [task for task in play["tasks"] if "ansible.builtin.import_tasks" in task]
    settings = {"checked": {"cluster": {"name": "red", "monitoring": True}, "options": {"state": "present"}}}
    variables = {
        **play["vars"],
        **imported["vars"],
        **task["vars"],
        "hostvars": {"localhost": settings},
        "deeplearning_folder": ".deeplearning",
        "status_page_started": {"answer": {"port": 6107}},
    }
    assert Templar(loader, variables).template(task["ansible.builtin.debug"]["msg"]) == (
        "Open http://red.localhost:6107, and http://red.localhost:9090 for Prometheus, while this runs (Ctrl-C ends "
        "it):\nssh -F .deeplearning/red.ssh_config -a -N -o ExitOnForwardFailure=yes -L 6107:127.0.0.1:6107 -L "
        "9090:127.0.0.1:9090 deeplearning-master"
    )


@pytest.mark.parametrize("framework", ["caffe", "../x", "{{ 1 }}"])
def test_a_framework_that_a_node_invents_is_refused(framework: str) -> None:
    with pytest.raises(untrusted.InvalidValue):
        answers.ANSWERS["run frameworks"]({"frameworks": [{"framework": framework}]})


def outcome(left_out: Sequence[str] = (), **groups: list[str]) -> tuple[bool, str]:
    """Return whether the last task of configure.yml passes, and its message if not."""
    loader = DataLoader()
    play = loader.load_from_file(str(ROLES.parent / "playbooks/configure.yml"), trusted_as_template=True)[-1]
    *_, task = play["tasks"]
    master = {"configure_published": {"stdout": json.dumps({"generation": 3, "changed": True, "left_out": left_out})}}
    members = [*groups.get("cluster", []), *groups.get("joining", [])]
    variables = {
        "configure_hosts": ",".join(members),
        "configure_selected": members,
        "groups": {"master": ["m"], "joining": [], **groups},
        "hostvars": {"m": master},
    }
    templar = Templar(loader, variables | task["vars"])
    asserted = task["ansible.builtin.assert"]
    passes = templar.evaluate_conditional(trust_as_template(asserted["that"]))
    return passes, "" if passes else str(templar.template(asserted["fail_msg"]))


def test_nodes_that_are_not_configured_or_not_listed_are_named() -> None:
    assert outcome(cluster=["m", "a"], configured=["m", "a"]) == (True, "")
    end = "The others are members, 1 of them. Fix this, then run: ansible-playbook deeplearning.aws.configure"
    assert outcome(cluster=["m", "a"], joining=["b"], configured=["m"]) == (
        False,
        f"a, b could not be configured: see above why. {end}",
    )
    assert outcome(cluster=["m", "a"], configured=["m"], unlisted=["a"], left_out=["Its report is no good."]) == (
        False,
        f"a is not in the member list: Its report is no good. {end}",
    )
    assert outcome(cluster=["m"], joining=["b"], configured=["m"], unlisted=["b"]) == (
        False,
        "b is not in the member list: it has not reported, or is not in service in its Auto Scaling group. " + end,
    )
