"""The limits of each reader of options: the last value that it takes, and the first that it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import readers as r
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import recipes, run_readers, setting_rules
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.option import Option, validate
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import TABLE


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (r.text, " a b ", "a b"),
        (r.text, 7, "7"),
        (r.text, 0.5, "0.5"),
        (r.name, "a", "a"),
        (r.name, "red-1-b2", "red-1-b2"),
        (r.name, "sthree", "sthree"),
        (r.region, "us-gov-west-1", "us-gov-west-1"),
        (r.role_arn, "arn:aws-cn:iam::123456789012:role/a/b+c", "arn:aws-cn:iam::123456789012:role/a/b+c"),
        (r.policy_arn, "arn:aws:iam::aws:policy/ReadOnly", "arn:aws:iam::aws:policy/ReadOnly"),
        (r.instance_type, "u-6tb1.112xlarge", "u-6tb1.112xlarge"),
        (r.emr_release, "emr-7.14.0", "emr-7.14.0"),
        (r.zone, "us-west-2-lax-1a", "us-west-2-lax-1a"),
        (r.bastion, "me@gate.example.com", "me@gate.example.com"),
        (r.bastion, "2001:db8::1", "2001:db8::1"),
        (r.user, "rooty", "rooty"),
        (r.user, "_" + "a" * 31, "_" + "a" * 31),
        (r.resource_id("vpc"), "vpc-0123abcd", "vpc-0123abcd"),
        (r.boolean, "On", True),
        (r.boolean, 1, True),
        (r.boolean, "0", False),
        (r.integer(1, 3), "3.00", 3),
        (r.integer(1, 3), " +1 ", 1),
        (r.integer(-2, 3), "-2", -2),
        (r.number(0, 8), "8", 8.0),
        (r.number(0, 8), 0, 0.0),
        (r.number(0, 8), "0.25", 0.25),
        (r.choice("auto", "true", "false"), "YES", "true"),
        (r.choice("a", "b"), " A ", "a"),
        (r.list_of(r.integer(1, 9)), (2, 1, "2"), [2, 1]),
        (r.list_of(r.text), "a,, b ,", ["a", "b"]),
        (r.list_of(r.text), ' ["a"] ', ["a"]),
        (r.networks, "198.51.100.0/24, 203.0.113.7", ["198.51.100.0/24", "203.0.113.7/32"]),
        (r.vpc_cidr, "10.0.0.0/27", "10.0.0.0/27"),
        (r.vpc_cidr, "10.0.0.0/16", "10.0.0.0/16"),
        (r.image, "ami-01234567", "ami-01234567"),
        (r.image, "family.v2/latest/ami-id/", "family.v2"),
        (r.mount_point, "//mnt/shared.1/a-b", "/mnt/shared.1/a-b"),
        (r.mount_point, "/homes", "/homes"),
        (r.mount_point, "/var/lib2", "/var/lib2"),
        (r.bucket, "s3://abc/p//", "abc/p"),
        (r.bucket, "a" * 63, "a" * 63),
        (r.bucket, "abc/A b!(c)'=+@:,-", "abc/A b!(c)'=+@:,-"),
        (r.tags, {"k" * 128: "v" * 256}, {"k" * 128: "v" * 256}),
        (r.tags, {"names": 1.5, "awsome": False}, {"names": "1.5", "awsome": "false"}),
        (r.tags, {f"k{number}": "" for number in range(40)}, {f"k{number}": "" for number in range(40)}),
        (run_readers.nodes, " 256 ", 256),
        (run_readers.nodes, ["deeplearning-worker99999"], ["deeplearning-worker99999"]),
        (run_readers.one_node, "i-01234567", "i-01234567"),
        (run_readers.one_node, " deeplearning-master ", "deeplearning-master"),
        (run_readers.processes, " AUTO ", "auto"),
        (run_readers.processes, 256, 256),
        (run_readers.dataset, "a" * 64, "a" * 64),
        (run_readers.data_source, "http://example.com/a", "http://example.com/a"),
        (run_readers.data_source, "s3://data/a.tar/", "s3://data/a.tar/"),
        (run_readers.node_folder, "/a//b/", "/a/b"),
        (run_readers.run_or_all, " all ", "all"),
        (run_readers.run_or_all, "lenet-1", "lenet-1"),
        (run_readers.run_ids, "all", []),
        (run_readers.run_ids, "a,b", ["a", "b"]),
        (run_readers.config, {1: None}, {"1": None}),
        (run_readers.environment, {"_A1": 0.5}, {"_A1": "0.5"}),
        (run_readers.sweep, "256,1", [256, 1]),
        (run_readers.words, ("a", 1, False), ["a", "1", "false"]),
    ],
)
def test_what_is_just_taken(read: r.Form[Any], value: Any, expected: Any) -> None:
    actual = read(value)
    assert actual == expected and type(actual) is type(expected)


@pytest.mark.parametrize(
    ("read", "value", "cure"),
    [
        (r.text, None, "give a text"),
        (r.text, {}, "give a text"),
        (r.text, "a\nb", "give a text of one line"),
        (r.text, "a\x1bb", "give a text of one line"),
        (r.name, "red-", "give lower-case letters"),
        (r.name, "sthree-a", "AWS reserves names that begin with sthree-, take another"),
        (r.name, "amzn-s3-demo-a", "AWS reserves names that begin with amzn-s3-demo-"),
        (r.region, "us-east-123", "give the name of a region"),
        (r.role_arn, "arn:aws:iam::12345678901:role/a", "give the ARN of an IAM role"),
        (r.user, "a" * 33, "the image's ordinary user"),
        (r.bastion, "-oProxyCommand=x", "give a host or user@host"),
        (r.bastion, "a b", "give a host or user@host"),
        (r.resource_id("vpc"), "vpc-0123456789abcdefg", "give an id, vpc- with 17"),
        (r.resource_id("vpc"), "subnet-01234567", "give an id, vpc- with 17"),
        (r.boolean, "2", "give true or false"),
        (r.boolean, None, "give true or false"),
        (r.integer(1, 3), 0, "give a whole number from 1 to 3"),
        (r.integer(1, 3, "it hurts"), 4, "give a whole number from 1 to 3, because it hurts"),
        (r.integer(1, 3), "1.5", "give a whole number from 1 to 3"),
        (r.integer(1, 3), [1], "give a whole number from 1 to 3"),
        (r.integer(1, 3), "\u0661", "give a whole number from 1 to 3"),
        (r.number(0, 8), 8.01, "give a number from 0 to 8"),
        (r.number(0, 8), "-0.5", "give a number from 0 to 8"),
        (r.number(0, 8), True, "give a number from 0 to 8"),
        (r.number(0, 8), "1e3", "give a number from 0 to 8"),
        (r.choice("a", "b", "c"), ["a"], "give one of a, b, c"),
        (r.choice("a"), "yes", "give a"),
        (r.list_of(r.text), 1, "give a list"),
        (r.list_of(r.text), "[", "it is no list in JSON"),
        (r.list_of(r.integer(1, 3)), "1,x", "of x, give a whole number"),
        (r.networks, "a", "of a, give an address or a network"),
        (r.vpc_cidr, "10.0.0.0/15", "give a smaller network"),
        (r.vpc_cidr, "169.254.0.0/16", "have a meaning of their own"),
        (r.vpc_cidr, "224.0.0.0/16", "have a meaning of their own"),
        (r.vpc_cidr, "240.0.0.0/16", "have a meaning of their own"),
        (r.vpc_cidr, "0.1.0.0/16", "have a meaning of their own"),
        (r.image, "ami-0123456789abcdef01", "give an id, ami-"),
        (r.image, "/other/family", "give the id of an AMI or a family"),
        (r.mount_point, "/var/lib", "the system uses this folder"),
        (r.mount_point, "/usr/local/efs", "the system uses this folder"),
        (r.mount_point, "/home", "the system uses this folder"),
        (r.mount_point, "/\u00e9fs", "give a folder of letters"),
        (r.bucket, "ab", "give the name of a bucket"),
        (r.bucket, "a" * 64, "give the name of a bucket"),
        (r.bucket, "a..b", "give the name of a bucket"),
        (r.bucket, "abc/$x", "the prefix may hold no wildcards"),
        (r.tags, ["a"], "give a map of names to values"),
        (r.tags, {"a": None}, "of a, give a text"),
        (r.tags, {"AWS:a": "x"}, "of AWS:a, take another name"),
        (r.tags, {"name": "x"}, "of name, take another name"),
        (r.tags, {"k" * 129: "x"}, "give at most 128 letters"),
        (r.tags, {"k": "v" * 257}, "give at most 128 letters"),
        (r.tags, {"k": "a*"}, "give at most 128 letters"),
        (run_readers.nodes, 257, "give a whole number from 1 to 256"),
        (run_readers.nodes, "1.5", "give a whole number"),
        (run_readers.nodes, [], "give a number, a range such as 6-8, or a list of members"),
        (run_readers.nodes, "deeplearning-worker0", "give a number, a range such as 6-8, or a list of members"),
        (run_readers.nodes, ["deeplearning-master", "x"], "give a number, a range such as 6-8, or a list of members"),
        (run_readers.one_node, "i-0123", "give a member as the inventory names it"),
        (run_readers.dataset, "hdfs://a/b", "HDFS is not supported"),
        (run_readers.dataset, "a" * 65, "give cifar10"),
        (run_readers.node_folder, "/a/../b", "give a path on the nodes"),
        (run_readers.environment, {"1A": "x"}, "1A cannot be the name of a variable"),
        (run_readers.environment, {"A": None}, "of A, give a text, within quotes"),
        (run_readers.environment, "A=1", "give a map"),
        (run_readers.sweep, "0", "of 0, give a whole number from 1 to 256"),
        (run_readers.words, [None], "give a list of words"),
        (run_readers.words, 5, "give a list"),
        (run_readers.run_or_all, "ALL", "give a run's id: up to 48 of a-z 0-9 . _ -"),
    ],
)
def test_what_is_just_refused(read: r.Form[Any], value: Any, cure: str) -> None:
    with pytest.raises(r.InvalidOption) as refused:
        read(value)
    assert cure in str(refused.value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a b", "a b"),
        (" a", '" a"'),
        ("", '""'),
        ("a\nb", '"a\\nb"'),
        (True, "true"),
        (1, "1"),
        ({"a": Path("/x")}, '{"a": "/x"}'),
    ],
)
def test_values_are_shown_as_they_are_given(value: Any, shown: str) -> None:
    assert r.shown(value) == shown


def test_files_have_to_be_there_and_of_the_right_kind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (tmp_path / "putty").write_text("PuTTY-User-Key-File-3: ssh-ed25519\n")
    file, key = str(tmp_path / "file"), str(tmp_path / "key")
    assert run_readers.data_source(file) == file and run_readers.folder(str(tmp_path)) == str(tmp_path)
    assert r.private_key(key) == key and r.private_key(str(tmp_path / "putty"))
    for read, value, cure in (
        (run_readers.data_source, str(tmp_path), "there is no such file on this machine"),
        (run_readers.folder, file, "there is no such folder on this machine"),
        (r.private_key, file, "that is no private key"),
        (r.private_key, f"{file}2", "there is no such file"),
        (r.private_key, str(tmp_path), "it cannot be read (Is a directory)"),
        (r.public_key, key, "that is a private key, which must stay secret"),
        (r.public_key, file, "that is no public key of one line"),
    ):
        with pytest.raises(r.InvalidOption) as refused:
            read(value)
        assert cure in str(refused.value)


def test_an_option_knows_its_kind_and_how_it_is_given() -> None:
    count = Option("count", r.integer(1, 3).such_as(2).by_default(1), "")
    assert (count.form.kind, count.form.range, count.may_be_empty) == ("number", "1 to 3", False)
    assert (count.argument(), count.argument(0)) == ("-e count=2", "-e count=0")
    zones = Option("zones", r.list_of(r.zone).such_as(["a"]), "")
    assert zones.argument() == """-e '{"zones": ["a"]}'"""
    assert (zones.form.kind, zones.default, zones.may_be_empty) == ("list of zone", [], True)
    bare = Option("x", r.Form(str).such_as("y"), "")
    assert (bare.form.kind, bare.form.range, bare.default, bare.may_be_empty) == ("text", "", None, True)
    assert count.problem("a b ", "give one") == 'count is "a b ": give one. Example: -e count=2'


@pytest.mark.parametrize(
    ("form", "default", "expected"),
    [
        (r.flag, None, (False, True)),
        (r.boolean, None, (None, True)),
        (r.boolean, True, (True, False)),
        (r.choice("a", "b"), "a", ("a", "b")),
        (r.choice("a", "b"), "b", ("b", "a")),
        (r.resource_id("vpc"), None, ("", "vpc-0123456789abcdef0")),
        (r.list_of(r.resource_id("sg")), None, ([], ["sg-0123456789abcdef0"])),
        (r.or_never(r.integer(0, 9)), 0, (0, 0)),
        (r.or_never(r.integer(0, 9).such_as(3)), 0, (0, 3)),
    ],
)
def test_an_option_has_the_default_and_an_example_of_its_form(form: r.Form[Any], default: Any, expected: Any) -> None:
    option = Option("x", form if default is None else form.by_default(default), "")
    assert (option.default, option.example) == expected


def test_missing_values_have_their_default_and_wrong_ones_no_value() -> None:
    table = [
        Option("count", r.integer(1, 3).such_as(2).by_default(1), ""),
        Option("note", r.text.such_as("y"), ""),
        Option("run", r.integer(1, 3).such_as(2), "", required="say which"),
    ]
    checked = validate(table, {"note": " ", "other": 1})
    assert checked.values == {"count": 1, "note": "", "run": None}
    assert checked.problems == ["run is not given: say which. Example: -e run=2"]
    checked = validate(table, {"count": None, "note": "n", "run": "3"})
    assert checked.values == {"note": "n", "run": 3} and len(checked.problems) == 1
    assert [value for value in (None, "", " ", 0, [], "a") if r.is_empty(value)] == [None, "", " "]


# Rules between settings


EMR = {"name": "red", "region": "us-east-1", "key_name": "mine", "ssh_allowed_cidrs": ["198.51.100.1/32"]}


def on_emr(emr: bool = True, provisioning: bool = True, **more: Any) -> list[str]:
    variables = {f"cluster_{name}": value for name, value in {**EMR, **more}.items()}
    return setting_rules.check(variables, provisioning, emr).problems


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("spot", True, "cluster_spot is true: spot instances"),
        ("placement_group", "true", "cluster_placement_group is true: EMR puts"),
        ("efa", "true", "cluster_efa is true: EMR attaches no EFA. Leave it out."),
        ("root_volume_type", "gp2", "cluster_root_volume_type is gp2: EMR chooses"),
        ("monitoring", True, "cluster_monitoring is true: EMR's machines run Amazon Linux"),
        ("capacity_policy", "best_effort", "cluster_capacity_policy is best_effort: EMR starts all"),
        ("ttl_hours", 8, "cluster_ttl_hours is 8: it is for machines of Auto Scaling groups."),
        ("idle_minutes", 45, "cluster_idle_minutes is 45: it is for machines of Auto Scaling groups."),
        ("login_user", "ubuntu", "cluster_login_user is ubuntu: on EMR it is hadoop. Leave it out."),
        ("worker_count", 0, "cluster_worker_count is 0: EMR needs a core node. Example: -e cluster_worker_count=1"),
    ],
)
def test_what_emr_cannot_grant_is_refused_for_emr_alone(setting: str, value: Any, words: str) -> None:
    (problem,) = on_emr(**{setting: value})
    assert problem.startswith(words)
    assert on_emr(emr=False, **{setting: value}) == []
    assert on_emr(provisioning=False, **{setting: value}) == []


def test_what_emr_grants_is_taken() -> None:
    assert on_emr() == on_emr(login_user="hadoop", worker_count=1, ttl_hours=0, efa="false") == []


def completed(emr: bool, **more: Any) -> dict[str, Any]:
    variables = {f"cluster_{name}": value for name, value in {**EMR, **more}.items()}
    return setting_rules.complete(setting_rules.check(variables, True, emr).values, emr)


def test_on_emr_some_settings_are_fixed() -> None:
    fixed = completed(True, worker_count=3)
    assert (fixed["login_user"], fixed["capacity_policy"]) == ("hadoop", "all_or_nothing")
    assert (fixed["worker_min"], fixed["placement_group"], fixed["efa"], fixed["image"]) == (3, "false", "false", "")
    assert completed(True, image="ami-0123456789abcdef0")["image"] == "ami-0123456789abcdef0"
    usual = completed(False, worker_count=3)
    assert usual["image"] == TABLE["cluster_image"].default and usual["worker_min"] == 1
    assert usual["login_user"] != "hadoop"


def test_settings_follow_from_others() -> None:
    assert completed(False, instance_type="g5.xlarge")["master_instance_type"] == "g5.xlarge"
    both = completed(False, instance_type="g5.xlarge", master_instance_type="c5.large")
    assert both["master_instance_type"] == "c5.large"
    assert completed(False, ssh_allow_world=True, ssh_allowed_cidrs=[])["ssh_allowed_cidrs"] == ["0.0.0.0/0"]
    assert completed(False, ssh_allow_world=True)["ssh_allowed_cidrs"] == ["198.51.100.1/32"]
    assert completed(False, worker_count=0)["worker_min"] == 0


@pytest.mark.parametrize(("region", "longest"), [("us-east-1", 40), ("ap-northeast-1", 35)])
def test_a_name_leaves_room_for_the_region_and_the_account(region: str, longest: int) -> None:
    assert on_emr(emr=False, name="r" * longest, region=region) == []
    (problem,) = on_emr(emr=False, name="r" * (longest + 1), region=region)
    assert f"it has {longest + 1} characters, and in {region} " in problem and f"leave room for {longest}." in problem


def test_zones_are_the_regions() -> None:
    assert on_emr(emr=False, availability_zones=["us-east-1a"]) == []
    (problem,) = on_emr(emr=False, availability_zones=["us-east-1a", "us-east-2a", "eu-west-1b"])
    assert problem.startswith("cluster_availability_zones names us-east-2a, eu-west-1b: give zones of us-east-1")
    assert '["us-east-1a"]' in problem


# Recipes


def recipe(folder: Path, text: str) -> str:
    (folder / "mine.yml").write_text(text)
    return str(folder / "mine.yml")


def test_a_recipes_map_becomes_arguments(tmp_path: Path) -> None:
    text = "framework: pytorch\nscript_args: [--fast]\nconfig: {LR: 0.1, SIZES: [1, 2], NAME: a b}\n"
    assert recipes.arguments(recipe(tmp_path, text), {"LR": 0.2}, ["framework", "script_args"]) == {
        "framework": "pytorch",
        "script_args": ["--fast", "LR=0.2", "SIZES=[1,2]", "NAME=a b"],
    }
    plain = recipe(tmp_path, "framework: pytorch\n")
    assert recipes.arguments(plain, {}, ["framework"]) == {"framework": "pytorch"}
    assert recipes.known() and recipes.arguments(recipes.known()[0], {}, TRAIN)


TRAIN = [
    *("framework", "distribution", "script", "script_args", "nodes", "dataset", "env", "processes_per_node", "sync"),
    *("data_source", "max_restarts", "python", "recipe", "run_id"),
]


@pytest.mark.parametrize(
    ("text", "changes", "problem"),
    [
        ("run_id: a\nframwork: b\n", {}, "it has the unknown key framwork, run_id; a recipe takes config, framework"),
        ("config: [a]\n", {}, "its config is no map"),
        ("framework: a\n", {"LR": 1}, "it has no config that recipe_config could change"),
        ("config: {A: 1}\nscript_args: --fast\n", {}, "its script_args are no list"),
        ("- a\n", {}, "it is no map of train.yml's arguments"),
        ("1: a\n", {}, "it is no map of train.yml's arguments"),
        ("a: [\n", {}, "it cannot be read (while parsing"),
    ],
)
def test_a_recipe_that_is_none_is_refused(tmp_path: Path, text: str, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(r.InvalidOption) as refused:
        recipes.arguments(recipe(tmp_path, text), changes, ["framework", "script_args", "run_id"])
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("name", ["nowhere", "no/such", "x.yml", "x.yaml"])
def test_a_recipe_that_is_nowhere_is_refused_with_the_names_of_the_others(name: str) -> None:
    with pytest.raises(r.InvalidOption, match=f"there is no such recipe, give {recipes.known()[0]}"):
        recipes.arguments(name, {}, [])
