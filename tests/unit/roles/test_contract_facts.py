"""Facts that roles, playbooks and units have to write as literals are those of the contract."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.deeplearning.aws.plugins.filter.core import contract
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot, hosts, names, paths, ports
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.frameworks import FRAMEWORKS
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import Names
from ansible_collections.deeplearning.aws.plugins.module_utils.node import services
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import TABLE
from deeplearning.health.cli import MASTERS_TIMERS, TIMERS

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(path for folder in ("roles", "playbooks") for path in (ROOT / folder).rglob("*.yml"))
NODE = ROOT / "files/node"
CLUSTER = Names("red", region="us-east-1")
LITERALS = {
    r"deeplearning-(?:master|worker\d+)\b": {hosts.MASTER, hosts.MASTER_ALIAS},
    r"(?<![\w}])/(?:opt|etc|run|usr/local/bin|var/lib)/deeplearning\b[\w./-]*\w": {
        *(value for value in vars(paths).values() if isinstance(value, str)),
        *(str(Path(file).parent) for file in (paths.LIBRARY, paths.CLUSTER)),
    },
}


def rendered(file: str, name: str, **variables: Any) -> Any:
    """Return a variable of a role or of a play, on a node of the cluster."""
    loader = DataLoader()
    content = loader.load_from_file(str(ROOT / file), trusted_as_template=True)
    (value,) = values_of(content, name)
    siblings = content if isinstance(content, dict) else {}
    return Templar(loader, siblings | variables).template(value)


def values_of(content: Any, name: str) -> Iterator[Any]:
    if isinstance(content, dict) and name in content:
        yield content[name]
    items = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    for item in items:
        yield from values_of(item, name)


def test_keys_of_tags_and_ports_are_written_in_the_contract_alone() -> None:
    keys = {value for name, value in vars(names).items() if name.endswith("_TAG")}
    numbers = {str(value) for name, value in vars(ports).items() if name.isupper()}
    literals = {
        (literal, str(file.relative_to(ROOT)))
        for file in FILES
        for literal in re.findall(r"deeplearning:[a-z]+|\b\d{4}\b", file.read_text(encoding="utf-8"))
    }
    assert {(literal, file) for literal, file in literals if literal in keys | numbers} == set()


@pytest.mark.parametrize("pattern", LITERALS)
def test_literals_are_the_contracts(pattern: str) -> None:
    literals = {
        (literal, str(file.relative_to(ROOT)))
        for file in FILES
        for literal in re.findall(pattern, file.read_text(encoding="utf-8"))
    }
    assert literals
    assert {(literal, file) for literal, file in literals if literal not in LITERALS[pattern]} == set()


def test_documented_variables_of_roles_reach_machines_that_configure_themselves() -> None:
    text = " ".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    documented = set(re.findall(r"`(\w+):[^`]*`\s[^`.]*`inventory/group_vars/all.yml`", text)) - TABLE.keys()
    assert documented == {"tensorpack_source", "framework_wheels"}
    file = "playbooks/tasks/provision/resources.yml"
    sent = {"tensorpack_source": "/efs/data/tensorpack", "framework_wheels": "/efs/data/wheels"}
    assert rendered(file, "bucket_bundle_variables", **sent) == sent
    assert rendered(file, "bucket_bundle_variables") == dict.fromkeys(sent, "")


def test_units_and_the_command_start_the_installed_program() -> None:
    units = [path.read_text(encoding="utf-8") for path in (NODE / "units").glob("*.service")]
    assert {line.split()[0] for unit in units for line in re.findall("^Exec.*?=(.*)", unit, re.M)} == {paths.PROGRAM}
    assert f" {paths.LIBRARY}/__main__.py " in (NODE / "bin/deeplearning").read_text(encoding="utf-8")


def test_timers_are_those_of_the_health_check() -> None:
    timers = rendered("roles/cluster_env/vars/main.yml", "__cluster_env_timers")
    # It runs once after each boot.
    assert set(timers["master"]) == {*TIMERS, *MASTERS_TIMERS, "deeplearning-recover.timer"}
    assert set(timers["worker"]) == set(TIMERS)


def test_unit_files_are_where_systemd_is_reloaded_for_them() -> None:
    installed = rendered(
        "roles/cluster_env/vars/main.yml", "__cluster_env_unit_paths", role_path=str(ROOT / "roles/cluster_env")
    )
    assert installed and {str(Path(path).parent) for path in installed} == {services.UNITS}


@pytest.mark.parametrize(
    ("file", "name", "expected"),
    [
        ("playbooks/train.yml", "__wheels", paths.wheels("/fs")),
        ("playbooks/node.yml", "__wheels", paths.wheels("/fs")),
        ("roles/framework/defaults/main.yml", "framework_horovod_wheels", paths.wheels("/efs")),
        ("playbooks/train.yml", "__runs", paths.runs("/fs", "red")),
        ("playbooks/report.yml", "__runs", paths.runs("/fs", "red")),
        ("playbooks/evaluate.yml", "__folder", f"{paths.runs('/fs', 'red')}/lenet-1"),
    ],
)
def test_folders_on_the_shared_file_system(file: str, name: str, expected: str) -> None:
    cluster = {"name": "red", "efs_mount": "/fs"}
    variables = {"__cluster": cluster, "node_cluster": cluster, "__options": {"run_id": "lenet-1"}}
    assert rendered(file, name, **variables) == expected


def test_names_of_resources() -> None:
    for emr, roles in ((False, (names.MASTER, names.WORKER)), (True, (names.EMR_NODE, names.EMR_SERVICE))):
        identities = rendered(
            "roles/iam/vars/main.yml", "__iam_names", iam_cluster="red", iam_region="us-east-1", iam_emr=emr
        )
        assert identities == {role: CLUSTER.identity(role) for role in roles}
    security_groups = rendered(
        "roles/network/vars/main.yml",
        "__network_security_group_names",
        network_cluster="red",
        network_public=True,
        network_emr=False,
    )
    assert security_groups == [CLUSTER.of("members"), CLUSTER.of("efs"), CLUSTER.of("ssh")]
    storage = "roles/storage/tasks/main.yml"
    assert rendered(storage, "creation_token", storage_cluster="red") == CLUSTER.cluster


@pytest.mark.parametrize("role", ["iam", "machines", "network", "storage"])
def test_a_users_tags_do_not_replace_the_clusters(role: str) -> None:
    users = {names.CLUSTER_TAG: "blue", "team": "a"}
    tags = rendered(
        f"roles/{role}/vars/main.yml", f"__{role}_tags", **{f"{role}_cluster": "red", f"{role}_tags": users}
    )
    assert tags == {names.CLUSTER_TAG: "red", "team": "a"}


def test_a_framework_has_pins_and_a_record() -> None:
    pinned = {path.name for path in (ROOT / "roles/framework/files").iterdir()}
    assert pinned == set(FRAMEWORKS)


def test_roles_read_the_contract() -> None:
    assert rendered("roles/network/vars/main.yml", "__network_tagged", network_cluster="red") == {
        f"tag:{names.CLUSTER_TAG}": "red"
    }
    tasks = "roles/machines/tasks/scaling_groups.yml"
    assert set(values_of(yaml.safe_load((ROOT / tasks).read_text()), "lifecycle_hook_name")) == {
        "{{ 'boot.HOOK' | deeplearning.aws.contract }}"
    }
    assert contract("boot.HOOK") == boot.HOOK and contract("ports.NFS") == ports.NFS


@pytest.mark.parametrize(
    "constant", ["names.Names", "names.NONE", "paths.RUNS", "CLUSTER_TAG", "names.domain", "os.path"]
)
def test_what_is_no_constant_of_the_contract_is_refused(constant: str) -> None:
    with pytest.raises(AnsibleFilterError, match=f"{constant} is no constant of the contract."):
        contract(constant)
