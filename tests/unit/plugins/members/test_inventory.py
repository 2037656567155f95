"""The inventory plugin: hosts, groups and variables, and what happens without AWS."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import context
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import inventory_loader
from ansible.template import Templar
from ansible.utils import vars as ansible_vars
from ansible.vars.manager import VariableManager
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members import hosts

from tests.unit.conftest import Account
from tests.unit.plugins.hostile_kit import EVIL
from tests.unit.plugins.instances_kit import MASTER, emr_instance, instance

ROOT = Path(__file__).resolve().parents[4]
STRICT = "-o ForwardAgent=no -o StrictHostKeyChecking=yes"
THROUGH = "-o 'ProxyCommand=ssh -o StrictHostKeyChecking=yes -o ForwardAgent=no -W %h:%p"


class Answer:
    """Stands in for AWS: returns the same instances each time, and records the queries."""

    def __init__(self, *instances: dict[str, Any]) -> None:
        self.machines = instances
        self.queries: list[dict[str, Any]] = []
        self.logins: list[tuple[Any, ...]] = []

    def instances(self, **params: Any) -> list[dict[str, Any]]:
        self.queries.append(params)
        return list(self.machines)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    def make(*instances: dict[str, Any]) -> Answer:
        fake = Answer(*instances)

        def login(*options: Any) -> Answer:
            fake.logins.append(options)
            return fake

        plugin = inventory_loader.get("deeplearning.aws.cluster")
        monkeypatch.setitem(type(plugin).parse.__globals__, "Aws", login)
        return fake

    return make


@pytest.fixture(autouse=True)
def extra_vars(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The extra vars. Ansible reads them once per process."""
    options: dict[str, Any] = {}
    monkeypatch.setattr(ansible_vars.load_extra_vars, "extra_vars", options, raising=False)
    monkeypatch.setattr("ansible.plugins.inventory.load_extra_vars", lambda _loader: options)
    return options


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Any]:
    """An inventory as Ansible itself reads it from a file with these options."""

    def read_options(flush: bool = False, **more: Any) -> Any:
        file = tmp_path / "red.deeplearning.yml"
        options = {"plugin": "deeplearning.aws.cluster", "cluster": "red", "folder": str(tmp_path)}
        file.write_text(yaml.safe_dump({**options, **more}))
        manager = InventoryManager(DataLoader(), sources=[str(file)], parse=False)
        plugin = inventory_loader.get("deeplearning.aws.cluster")
        assert plugin.verify_file(str(file))
        plugin.parse(manager._inventory, manager._loader, str(file), cache=not flush)
        if more.get("cache"):
            plugin.update_cache_if_changed()
        manager._inventory.reconcile_inventory()
        return manager

    return read_options


def members(inventory: Any, group: str) -> list[str]:
    return [host.name for host in inventory.groups[group].get_hosts()]


def of_all(inventory: Any, name: str) -> Any:
    return inventory.groups["all"].get_vars().get(name)


def test_groups_and_names(answer: Any, read: Any) -> None:
    answer(instance(3, rank="3"), MASTER, instance(2, rank="2"), instance(4))
    inventory = read()
    assert members(inventory, "master") == ["deeplearning-master"]
    assert members(inventory, "workers") == ["deeplearning-worker2", "deeplearning-worker3"]
    assert members(inventory, "cluster") == ["deeplearning-master", "deeplearning-worker2", "deeplearning-worker3"]
    assert members(inventory, "joining") == [instance(4)["InstanceId"]]
    assert len(members(inventory, "type_g5_xlarge")) == len(members(inventory, "zone_us_east_1a")) == 4


def test_variables(answer: Any, read: Any) -> None:
    answer(MASTER, instance(2, rank="2", InstanceLifecycle="spot"))
    inventory = read()
    assert {
        key: str(value) for key, value in inventory.hosts["deeplearning-worker2"].vars.items() if key[0] != "i"
    } == {
        "ansible_control_path": "%(directory)s/i-00000000000000002-00000001-%%r",
        "ansible_host": "10.0.0.2",
        "ansible_ssh_common_args": f"{STRICT} {THROUGH} ubuntu@198.51.100.9'",
        "ansible_user": "ubuntu",
        "deeplearning_cluster": "red",
        "deeplearning_gpus": "1",
        "deeplearning_image": "ami-0123456789abcdef0",
        "deeplearning_instance_id": "i-00000000000000002",
        "deeplearning_private_address": "10.0.0.2",
        "deeplearning_private_name": "ip-10-0-0-2.ec2.internal",
        "deeplearning_public_address": "",
        "deeplearning_rank": "2",
        "deeplearning_role": "worker",
        "deeplearning_spot": "True",
        "deeplearning_state": "running",
        "deeplearning_type": "g5.xlarge",
        "deeplearning_zone": "us-east-1a",
    }
    master = inventory.hosts["deeplearning-master"].vars
    assert master["ansible_host"] == "198.51.100.9"
    assert master["ansible_ssh_common_args"] == STRICT


def interpreter(inventory: Any, host: str) -> Any:
    variables = VariableManager(loader=inventory._loader, inventory=inventory)
    return variables.get_vars(host=inventory.hosts[host])["ansible_python_interpreter"]


def test_python_is_not_discovered(answer: Any, read: Any) -> None:
    answer(MASTER, instance(2))
    inventory = read()
    for host in ("deeplearning-master", instance(2)["InstanceId"]):
        assert interpreter(inventory, host) == "/usr/bin/python3"


@pytest.mark.parametrize("group", ["all", "cluster"])
def test_users_choose_another_python_in_group_vars(answer: Any, read: Any, tmp_path: Path, group: str) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / f"{group}.yml").write_text("ansible_python_interpreter: /opt/python\n")
    answer(MASTER)
    assert interpreter(read(), "deeplearning-master") == "/opt/python"


def test_users_choose_another_python_by_compose(answer: Any, read: Any) -> None:
    answer(MASTER)
    inventory = read(compose={"ansible_python_interpreter": "'/opt/python'"})
    assert interpreter(inventory, "deeplearning-master") == "/opt/python"


def test_no_play_on_nodes_overrides_the_python_that_users_choose() -> None:
    for path in ROOT.glob("playbooks/*.yml"):
        for play in yaml.safe_load(path.read_text()):
            if play.get("hosts") != "localhost":
                assert "ansible_python_interpreter" not in play.get("vars", {}), (path.name, play["name"])


def test_within_the_vpc_machines_are_reached_directly(answer: Any, read: Any) -> None:
    answer(MASTER, instance(2, rank="2"))
    inventory = read(connection="direct")
    assert inventory.hosts["deeplearning-master"].vars["ansible_host"] == "10.0.0.1"
    for name in members(inventory, "cluster"):
        assert inventory.hosts[name].vars["ansible_ssh_common_args"] == STRICT
    assert of_all(inventory, "deeplearning_connection") == "direct"


def test_without_a_public_address_the_way_leads_through_the_masters_private_one(answer: Any, read: Any) -> None:
    answer({**MASTER, "PublicIpAddress": ""}, instance(2, rank="2"))
    master, worker = (read().hosts[name].vars for name in ("deeplearning-master", "deeplearning-worker2"))
    assert (master["ansible_host"], master["ansible_ssh_common_args"]) == ("10.0.0.1", STRICT)
    assert "-W %h:%p ubuntu@10.0.0.1" in worker["ansible_ssh_common_args"]


def test_machines_in_sshs_configuration_are_reached_with_it(answer: Any, read: Any, tmp_path: Path) -> None:
    answer(MASTER, instance(2, rank="2"), instance(3, rank="3"))
    folder = tmp_path / "a folder"
    folder.mkdir()
    config = folder / "red.ssh_config"
    config.write_text(f"Host deeplearning-master {MASTER['InstanceId']}\nHost {instance(2)['InstanceId']} x\n")
    inventory = read(folder=str(folder))
    ways = [inventory.hosts[name].vars["ansible_ssh_common_args"] for name in members(inventory, "cluster")]
    # Who is not in it yet is reached through a master that is known, and then refused.
    known = f"-o ForwardAgent=no -F '{config}'"
    assert ways[:2] == [known, known]
    words = shlex.split(ways[2].removeprefix(f"{STRICT} -F '{config}' -o "))
    assert words == [f"ProxyCommand=ssh -F '{config}' -o ForwardAgent=no -W %h:%p deeplearning-master"]
    assert of_all(inventory, "deeplearning_folder") == str(folder)


def test_an_old_configuration_of_the_same_name_is_ignored(answer: Any, read: Any, tmp_path: Path) -> None:
    answer(MASTER)
    (tmp_path / "red.ssh_config").write_text("Host deeplearning-master i-0fffffffffffffff0 10.0.0.1 198.51.100.9\n")
    assert read(folder=str(tmp_path)).hosts["deeplearning-master"].vars["ansible_ssh_common_args"] == STRICT


def test_connections_of_two_machines_with_one_address_are_apart(answer: Any, read: Any) -> None:
    answer(MASTER, instance(2, "blue-master", cluster="blue", PrivateIpAddress="10.0.0.1"))
    inventory = read(cluster=["red", "blue"])
    paths = {inventory.hosts[name].vars["ansible_control_path"] for name in members(inventory, "cluster")}
    assert len(paths) == 2


def test_a_connection_through_a_master_is_not_taken_when_another_is_in_its_place(answer: Any, read: Any) -> None:
    paths = []
    for number in (1, 3):
        answer(instance(number, "red-master"), instance(2, rank="2"))
        paths.append(read().hosts["deeplearning-worker2"].vars["ansible_control_path"])
    assert paths[0] != paths[1]


@pytest.mark.parametrize(("tag", "gpus"), [("8", 8), ("0", 0), ("", None), ("many", None), ("-1", None), (EVIL, None)])
def test_gpus_are_read_from_the_tag(answer: Any, read: Any, tag: str, gpus: int | None) -> None:
    tags = [tag for tag in MASTER["Tags"] if tag["Key"] != "deeplearning:gpus"]
    answer({**MASTER, "Tags": [*tags, {"Key": "deeplearning:gpus", "Value": tag}]})
    assert read().hosts["deeplearning-master"].vars["deeplearning_gpus"] == gpus


@pytest.mark.parametrize("stranger", ["blue-workers", "red", "red-masters", ""])
def test_an_instance_that_no_group_has_launched_is_no_node(answer: Any, read: Any, stranger: str) -> None:
    answer(MASTER, instance(2, stranger, rank="2"))
    assert members(read(), "all") == ["deeplearning-master"]


@pytest.mark.parametrize("rank", ["1", "0", "-2", "02", "two", "2 ", EVIL, "999999"])
def test_a_tag_that_is_no_rank_of_a_worker_is_ignored(answer: Any, read: Any, rank: str) -> None:
    answer(MASTER, instance(2, rank=rank))
    assert members(read(), "joining") == [instance(2)["InstanceId"]]


def test_of_two_workers_with_one_rank_the_older_has_it(answer: Any, read: Any) -> None:
    answer(MASTER, instance(7, rank="2"), instance(3, rank="2"))
    inventory = read()
    assert inventory.hosts["deeplearning-worker2"].vars["deeplearning_instance_id"] == instance(3)["InstanceId"]
    assert members(inventory, "joining") == [instance(7)["InstanceId"]]


def test_of_two_masters_the_newer_has_the_rank(answer: Any, read: Any) -> None:
    answer(instance(5, "red-master"), instance(9, "red-master"))
    inventory = read()
    assert inventory.hosts["deeplearning-master"].vars["deeplearning_instance_id"] == instance(9)["InstanceId"]
    assert members(inventory, "joining") == [instance(5)["InstanceId"]]


def test_several_clusters(answer: Any, read: Any) -> None:
    answer(MASTER, instance(2, rank="2"), instance(3, "blue-master", cluster="blue"), instance(4))
    inventory = read(cluster=["red", "blue"])
    assert members(inventory, "cluster") == ["red-master", "blue-master", "red-worker2"]
    assert members(inventory, "cluster_blue") == ["blue-master"]
    assert members(inventory, "joining") == [instance(4)["InstanceId"]]


def test_a_cluster_that_does_not_exist_has_empty_groups(answer: Any, read: Any) -> None:
    answer()
    inventory = read()
    assert {group: members(inventory, group) for group in hosts.GROUPS} == {group: [] for group in hosts.GROUPS}


def test_what_comes_from_aws_is_never_a_template(answer: Any, read: Any) -> None:
    answer(MASTER, instance(2, rank="2", PrivateDnsName=EVIL, ImageId=EVIL))
    variables = read().hosts["deeplearning-worker2"].get_vars()
    templar = Templar(DataLoader(), variables)
    assert templar.template(variables["deeplearning_private_name"]) == EVIL
    assert templar.template(variables["deeplearning_image"]) == EVIL


def test_nothing_but_an_address_and_a_user_gets_into_the_command_line(answer: Any, read: Any) -> None:
    evil = "x -o ProxyCommand=id"
    answer({**MASTER, "PublicIpAddress": evil}, instance(2, rank="2"))
    assert read().hosts["deeplearning-worker2"].vars["ansible_ssh_common_args"] == STRICT
    tags = [tag if tag["Key"] != "deeplearning:user" else {**tag, "Value": evil} for tag in MASTER["Tags"]]
    answer({**MASTER, "Tags": tags}, instance(2, rank="2"))
    assert read().hosts["deeplearning-worker2"].vars["ansible_ssh_common_args"] == f"{STRICT} {THROUGH} 198.51.100.9'"


def test_the_server_filters(answer: Any, read: Any) -> None:
    fake = answer()
    read(filters={"instance-type": "g5.xlarge"}, states=["running"])
    (query,) = fake.queries
    assert {condition["Name"]: condition["Values"] for condition in query["Filters"]} == {
        "tag:deeplearning:cluster": ["red"],
        "instance-state-name": ["running"],
        "instance-type": ["g5.xlarge"],
    }
    assert query["MaxResults"] == 1000


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        # A core node without a rank joins.
        (
            [emr_instance(1, "MASTER"), emr_instance(2, "CORE", rank="2"), emr_instance(3, "CORE")],
            {
                "master": ["deeplearning-master"],
                "workers": ["deeplearning-worker2"],
                "joining": ["i-" + "0" * 16 + "3"],
            },
        ),
        # An older cluster of the same name is ending.
        (
            [emr_instance(1, "MASTER", "j-0"), emr_instance(2, "CORE", "j-0", rank="2"), emr_instance(3, "MASTER")],
            {"master": ["deeplearning-master"], "workers": [], "joining": []},
        ),
        # Others can set the tag of the cluster, but not those of EMR. Task groups are none of ours.
        (
            [
                emr_instance(1, "MASTER"),
                emr_instance(2, "CORE", rank="2"),
                emr_instance(3, "TASK"),
                emr_instance(4, "", ""),
                emr_instance(5, "MASTER", ""),
            ],
            {"master": ["deeplearning-master"], "workers": ["deeplearning-worker2"], "joining": []},
        ),
        # Machines of the cluster's Auto Scaling groups come before those of a job flow that bears its tag.
        (
            [MASTER, emr_instance(4, "CORE", rank="2")],
            {"master": ["deeplearning-master"], "workers": [], "joining": []},
        ),
        # Without a primary node there is no cluster.
        ([emr_instance(2, "CORE", rank="2")], {"master": [], "workers": [], "joining": []}),
    ],
)
def test_the_machines_of_emr(
    answer: Any, read: Any, machines: list[dict[str, Any]], expected: dict[str, list[str]]
) -> None:
    answer(*machines)
    inventory = read()
    assert {name: [host.name for host in inventory.groups[name].hosts] for name in expected} == expected
    if len(expected["workers"]) == 1:
        assert inventory.get_host("deeplearning-worker2").vars["ansible_user"] == "hadoop"


def test_the_cluster_is_set_as_variables(answer: Any, read: Any) -> None:
    fake = answer()
    inventory = read(region="eu-west-1", profile="research", role_arn="arn:aws:iam::123456789012:role/x")
    assert of_all(inventory, "cluster_name") == "red"
    assert of_all(inventory, "cluster_region") == of_all(inventory, "deeplearning_region") == "eu-west-1"
    assert of_all(inventory, "cluster_profile") == "research"
    assert of_all(inventory, "cluster_role_arn") == "arn:aws:iam::123456789012:role/x"
    assert fake.logins == [("eu-west-1", "research", "arn:aws:iam::123456789012:role/x", "")]
    read(endpoint="http://127.0.0.1:4599")
    assert fake.logins[-1][-1] == "http://127.0.0.1:4599"


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({}, ""),
        (
            {"region": "eu-west-1"},
            "selects something else: cluster_region is eu-west-1 and was us-east-1. Hosts of both",
        ),
        ({"cluster": "blue"}, "cluster_name is blue and was red. "),
        ({"profile": "research"}, "cluster_profile is research and was empty. "),
    ],
)
def test_a_second_inventory_selects_the_same_cluster(
    answer: Any, tmp_path: Path, second: dict[str, str], words: str
) -> None:
    answer(MASTER)
    inventory = InventoryManager(DataLoader(), sources=[], parse=False)._inventory
    for name, more in (("one", {}), ("two", second)):
        file = tmp_path / f"{name}.deeplearning.yml"
        options = {"plugin": "deeplearning.aws.cluster", "cluster": "red", "folder": str(tmp_path)}
        file.write_text(yaml.safe_dump({**options, **more}))
        refused = pytest.raises(AnsibleError, match=re.escape(words)) if name == "two" and words else nullcontext()
        with refused:
            inventory_loader.get("deeplearning.aws.cluster").parse(inventory, DataLoader(), str(file))
    assert list(inventory.hosts) == ["deeplearning-master"]
    assert words in (of_all(inventory, "deeplearning_refused") or "")


def test_extra_vars_win_over_the_environment_and_that_over_the_file(
    answer: Any, read: Any, monkeypatch: pytest.MonkeyPatch, extra_vars: dict[str, Any]
) -> None:
    answer()
    monkeypatch.setenv("DEEPLEARNING_CLUSTER", "green")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert of_all(read(region="eu-west-1"), "cluster_name") == "green"
    assert of_all(read(region="eu-west-1"), "cluster_region") == "eu-west-3"
    extra_vars["cluster_name"] = "blue"
    assert of_all(read(region="eu-west-1"), "cluster_name") == "blue"
    assert of_all(read(region="eu-west-1"), "cluster_region") == "eu-west-3"


def test_the_documentation_names_the_variables_that_are_read() -> None:
    plugin = inventory_loader.get("deeplearning.aws.cluster")
    documented = yaml.safe_load(type(plugin).parse.__globals__["DOCUMENTATION"])["options"]
    for option, (variable, *names) in hosts.OVERRIDES.items():
        assert [entry["name"] for entry in documented[option]["env"]] == names
        assert f"C({variable})" in " ".join(documented[option]["description"])


def test_the_cache_is_read_first_and_left_alone(answer: Any, read: Any, tmp_path: Path) -> None:
    fake = answer(MASTER)
    options = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "cache")}
    assert members(read(**options), "cluster")
    (entry,) = (tmp_path / "cache").iterdir()
    written = entry.stat().st_mtime_ns
    assert members(read(**options), "cluster")
    assert len(fake.queries) == 1
    assert entry.stat().st_mtime_ns == written
    assert members(read(flush=True, **options), "cluster")
    assert len(fake.queries) == 2
    assert members(read(**{**options, "cluster": "blue"}), "cluster") == []
    assert len(fake.queries) == 3


def test_users_own_groups_and_variables(answer: Any, read: Any) -> None:
    answer(MASTER, instance(2, rank="2"))
    inventory = read(
        strict=True,
        compose={"colour": "deeplearning_cluster | upper"},
        groups={"even": "deeplearning_rank is divisibleby 2"},
        keyed_groups=[{"key": "deeplearning_state", "prefix": "state"}],
    )
    assert inventory.hosts["deeplearning-master"].vars["colour"] == "RED"
    assert members(inventory, "even") == ["deeplearning-worker2"]
    assert len(members(inventory, "state_running")) == 2


def test_an_empty_name_is_refused(answer: Any, read: Any) -> None:
    answer()
    with pytest.raises(AnsibleError, match="cluster is empty: give the cluster's name"):
        read(cluster=[])


def test_a_file_of_another_name_is_not_ours(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.touch()
    assert not inventory_loader.get("deeplearning.aws.cluster").verify_file(str(file))


def test_without_credentials_the_sentence_is_kept_for_the_playbooks(read: Any, aws: Account, monkeypatch: Any) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    warnings: list[str] = []
    monkeypatch.setattr("ansible.utils.display.Display.warning", lambda _self, text, *_more: warnings.append(text))
    inventory = read()
    assert of_all(inventory, "deeplearning_problem").startswith("AWS credentials are missing")
    assert of_all(inventory, "cluster_name") == "red"
    (warning,) = warnings
    assert warning.startswith("The cluster's machines are unknown. AWS credentials are missing")


OWN = [str(ROOT / "site.yml"), str(ROOT / "playbooks/train.yml"), "deeplearning.aws.site"]
THEIRS = "/home/me/own.yml"


@pytest.mark.parametrize(
    ("playbooks", "warns"),
    [
        *(([block], False) for block in OWN),
        (OWN, False),
        ([THEIRS], True),
        ([OWN[0], THEIRS], True),
        ([THEIRS, OWN[2]], True),
        ([], True),
        (["/home/me/site.yml"], True),
        ([str(ROOT / "tests/unit/site.yml")], True),
    ],
)
def test_only_playbooks_of_the_collection_silence_the_warning(
    read: Any, aws: Account, monkeypatch: pytest.MonkeyPatch, playbooks: list[str], warns: bool
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    warnings: list[str] = []
    monkeypatch.setattr("ansible.utils.display.Display.warning", lambda _self, text, *_more: warnings.append(text))
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(args=tuple(playbooks)))
    assert of_all(read(), "deeplearning_problem").startswith("AWS credentials are missing")
    assert len(warnings) == warns


def test_a_missing_permission_is_named(read: Any, aws: Account) -> None:
    words = {
        "code": "UnauthorizedOperation",
        "message": "You are not authorized to perform this operation.",
        "status": 403,
    }
    aws.cloud.faults.add("error", {"action": "ec2:DescribeInstances"}, words)
    assert "does not allow ec2:DescribeInstances" in of_all(read(), "deeplearning_problem")


def test_against_the_api(read: Any, aws: Account) -> None:
    """The filters are ones that the API knows."""
    inventory = read()
    assert of_all(inventory, "deeplearning_problem") is None
    assert members(inventory, "all") == []
    assert aws.calls() == ["ec2:DescribeInstances"]


def test_a_thousand_machines_are_asked_for_once(answer: Any, read: Any) -> None:
    fake = answer(MASTER, *(instance(number, rank=str(number)) for number in range(2, 1025)))
    inventory = read()
    assert len(members(inventory, "cluster")) == 1024
    assert len(fake.queries) == 1


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Stands in for the command line of ansible-playbook."""

    def set_options(playbook: str, **options: Any) -> None:
        monkeypatch.setattr(context, "CLIARGS", ImmutableDict(args=(playbook,), **options))

    return set_options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subset": "workers"}, "--limit workers leaves out localhost"),
        ({"tags": ("iam",)}, "--tags iam"),
        ({"skip_tags": ("all",)}, "--skip-tags all"),
        ({"start_at_task": "Remove"}, "--start-at-task Remove"),
    ],
)
def test_what_leaves_out_our_tasks_is_refused_before_any_call(
    options: dict[str, Any], sentence: str, answer: Any, read: Any, command: Any
) -> None:
    fake = answer(MASTER)
    command("deeplearning.aws.destroy", **options)
    with pytest.raises(AnsibleError, match=f"^{sentence}"):
        read()
    assert not fake.logins
    # Other people's playbooks have tags, and plays for other hosts.
    command("theirs.yml", **options)
    read()
    # Nothing runs.
    command("deeplearning.aws.destroy", **options, listtasks=True)
    read()


def test_a_limit_that_leaves_out_a_machine_of_the_playbook_is_refused(answer: Any, read: Any, command: Any) -> None:
    answer(MASTER, instance(2, rank="2"), instance(3))
    joining = instance(3)["InstanceId"]
    command("deeplearning.aws.stop", subset="localhost,workers")
    with pytest.raises(AnsibleError, match=f"leaves out deeplearning-master, {joining}, and deeplearning.aws.stop"):
        read()
    command("deeplearning.aws.stop", subset="localhost:cluster:joining")
    read()
    command("deeplearning.aws.destroy", subset="localhost")
    read()


def test_configure_is_passed_the_limit_in_the_place_of_ansible(
    answer: Any, read: Any, command: Any, tmp_path: Path
) -> None:
    answer(MASTER, instance(2, rank="2"))
    limit = tmp_path / "nodes.retry"
    limit.write_text("deeplearning-worker2\n\n")
    command("deeplearning.aws.configure", subset=f"@{limit}:!zone_b")
    for _again in range(2):
        assert of_all(read(), "deeplearning_limit") == ["deeplearning-worker2", "!zone_b"]
        assert context.CLIARGS["subset"] is None
    command("deeplearning.aws.configure", subset=None)
    assert of_all(read(), "deeplearning_limit") is None
    command("deeplearning.aws.configure", subset=f"@{tmp_path}/missing")
    with pytest.raises(AnsibleError, match="The file of --limit cannot be read: .*missing"):
        read()


def test_a_localhost_of_the_inventory_is_in_all(answer: Any, read: Any, command: Any) -> None:
    answer(MASTER)
    command("deeplearning.aws.plan", subset="all", inventory=("localhost,", "inventory"))
    read()
