# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What can be set, as a table; and what is wrong with what was set, all at once and a sentence each. No API calls.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.parsing.splitter import split_args
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _values as v
from ansible_collections.deeplearning.aws.plugins.plugin_utils._values import Wrong

PREFIX = "cluster_"
NOT_SETTINGS = ("cluster_plan",)
"""Names that begin like settings and are the playbooks' own."""
FOREIGN = ("cluster_env_",)
"""Prefixes of a role's variables."""
WIDEST = 8
"""A network with a shorter prefix than this counts as the whole world."""


@dataclass(frozen=True)
class Setting:
    name: str
    """without the prefix"""
    read: Callable[[Any], Any]
    """from what was given (in YAML, or as a string by -e) to the value, or Wrong"""
    default: Any
    example: Any
    help: str
    which: bool = False
    """says which cluster, not what it shall be: it is in the inventory file"""
    blank: bool = False
    """may be left empty"""

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def kind(self) -> str:
        return str(getattr(self.read, "kind", "text"))

    @property
    def range(self) -> str:
        return str(getattr(self.read, "range", ""))


SECTIONS: Sequence[tuple[str, str, Sequence[Setting]]] = (
    (
        "Which cluster",
        "These are set in `inventory/aws.deeplearning.yml`. Extra vars (`-e`) win over it.",
        (
            Setting(
                "name",
                v.name,
                "deeplearning",
                "red",
                "The cluster's name. Everything that it owns in AWS bears it.",
                which=True,
            ),
            Setting("region", v.region, "us-east-1", "eu-west-1", "The AWS region that it is in.", which=True),
            Setting(
                "profile",
                v.text,
                "",
                "research",
                "The AWS profile to log in with. Empty: what the AWS tools use by themselves.",
                which=True,
                blank=True,
            ),
            Setting(
                "role_arn",
                v.role_arn,
                "",
                "arn:aws:iam::123456789012:role/operator",
                "An IAM role to assume with it.",
                which=True,
                blank=True,
            ),
        ),
    ),
    (
        "Machines",
        "",
        (
            Setting(
                "instance_type",
                v.instance_type,
                "g5.xlarge",
                "g5.12xlarge",
                "The EC2 instance type of the workers, and of the master if that is not set.",
            ),
            Setting(
                "master_instance_type",
                v.instance_type,
                "",
                "g5.12xlarge",
                "The master's type, if it is another. As the master trains too, it must have as many GPUs.",
                blank=True,
            ),
            Setting(
                "master_trains",
                v.boolean,
                True,
                False,
                "Whether the master trains with the workers. If not, it is left out of the workers file and may be a "
                "type without GPUs.",
            ),
            Setting(
                "worker_count",
                v.integer(0, 1023),
                1,
                4,
                "How many workers, the machines beside the master: with N of them N + 1 machines train.",
            ),
            Setting(
                "worker_min",
                v.integer(0, 1023),
                None,
                2,
                "With fewer workers than this the cluster is of no use. Empty: 1 with the capacity policy at_least, "
                "worker_count with all_or_nothing, 0 with best_effort.",
                blank=True,
            ),
            Setting(
                "capacity_policy",
                v.choice("at_least", "all_or_nothing", "best_effort"),
                "at_least",
                "all_or_nothing",
                "What happens when AWS has fewer machines than asked for. at_least: go on with what came, if it is "
                "worker_min or more. all_or_nothing: give all of them back and fail. best_effort: go on with any.",
            ),
            Setting(
                "image",
                v.image,
                "base-oss-nvidia-driver-gpu-ubuntu-22.04",
                "ami-0123456789abcdef0",
                "What the machines boot: a family of AWS's Deep Learning AMIs (its newest image is looked up once and "
                "then kept), or the id of an AMI.",
            ),
            Setting(
                "user",
                v.user,
                "",
                "ubuntu",
                "The user to log in as. Empty: the one of the image, ubuntu or ec2-user.",
                blank=True,
            ),
            Setting("root_volume_gib", v.integer(8, 16384), 100, 200, "The size of each machine's own disk, in GiB."),
            Setting(
                "placement_group",
                v.choice("auto", "true", "false"),
                "auto",
                False,
                "Whether the machines stand close together in AWS's halls: faster between them, harder to get. "
                "auto: if the type can.",
            ),
            Setting(
                "efa",
                v.choice("auto", "true", "false"),
                "auto",
                False,
                "Whether the machines get AWS's fast network adapter (EFA). auto: if the type has it.",
            ),
            Setting(
                "spot",
                v.boolean,
                False,
                True,
                "Whether workers are spot instances: cheaper, and taken away when AWS needs them. The master never is.",
            ),
            Setting(
                "default_framework",
                v.choice("", "tensorflow", "mxnet", "tensorpack", "pytorch"),
                "",
                "pytorch",
                "The framework whose python a login shell finds. Empty: none, they are activated by name.",
                blank=True,
            ),
            Setting(
                "timeout_minutes",
                v.integer(1, 1440),
                55,
                90,
                "How long all machines together may take to be there.",
            ),
        ),
    ),
    (
        "Logging in",
        "Give exactly one of `cluster_key_name` and `cluster_public_key_file`.",
        (
            Setting(
                "ssh_location",
                v.networks,
                [],
                ["198.51.100.1/32"],
                "**Required.** The networks from which the master can be reached by ssh; a single address is fine. "
                "`curl https://checkip.amazonaws.com` tells yours.",
                blank=True,
            ),
            Setting(
                "ssh_anywhere",
                v.boolean,
                False,
                True,
                "Consent to ssh being open to the whole world (only keys can log in even then).",
            ),
            Setting(
                "ssh_exact",
                v.boolean,
                False,
                True,
                "Whether ssh rules that somebody added by hand are taken away again.",
            ),
            Setting("key_name", v.text, "", "my-key", "The EC2 key pair to log in with.", blank=True),
            Setting(
                "public_key_file",
                v.path,
                "",
                "~/.ssh/id_ed25519.pub",
                "A public key (RSA or Ed25519) on this machine to log in with; it is imported as a key pair of the "
                "cluster's name.",
                blank=True,
            ),
            Setting(
                "private_key_file",
                v.path,
                "",
                "~/.ssh/id_ed25519",
                "The private key that belongs to it; it stays on this machine. Empty: the one beside the public key "
                "file, else what ssh finds by itself.",
                blank=True,
            ),
        ),
    ),
    (
        "Network",
        "A network of its own (`cluster_vpc_cidr`), or one that exists (`cluster_vpc_id` and subnets).",
        (
            Setting(
                "vpc_cidr",
                v.vpc_cidr,
                "10.0.0.0/16",
                "10.20.0.0/16",
                "The addresses of the cluster's own network: its halves are the public and the private subnet.",
            ),
            Setting(
                "vpc_id", v.resource_id("vpc"), "", "vpc-0123456789abcdef0", "An existing VPC instead.", blank=True
            ),
            Setting(
                "public_subnet_ids",
                v.list_of(v.resource_id("subnet")),
                [],
                ["subnet-0123456789abcdef0"],
                "With an existing VPC: its subnets that reach the internet by a gateway, for the master. One a zone.",
                blank=True,
            ),
            Setting(
                "private_subnet_ids",
                v.list_of(v.resource_id("subnet")),
                [],
                ["subnet-0fedcba9876543210"],
                "With an existing VPC: its subnets that reach the internet by NAT, for the workers. One a zone.",
                blank=True,
            ),
            Setting(
                "zones",
                v.list_of(v.zone),
                [],
                ["us-east-1a", "us-east-1b"],
                "Availability zones to try, in this order; the whole cluster is in one. Empty: all that have the type.",
                blank=True,
            ),
            Setting(
                "security_group_ids",
                v.list_of(v.resource_id("sg")),
                [],
                ["sg-0123456789abcdef0"],
                "Further security groups for all machines.",
                blank=True,
            ),
        ),
    ),
    (
        "Storage",
        "",
        (
            Setting(
                "efs_id",
                v.resource_id("fs"),
                "",
                "fs-0123456789abcdef0",
                "An existing EFS file system to use. Empty: the one that this cluster kept, or a new one. Clusters "
                "that share one can run code on each other: docs/security.md.",
                blank=True,
            ),
            Setting("efs_mount", v.mount_point, "/efs", "/efs", "Where it is mounted."),
            Setting(
                "efs_tls",
                v.boolean,
                False,
                True,
                "Whether nodes mount it with TLS. This needs an image with amazon-efs-utils: Amazon Linux has a "
                "package of it, other families are refused, and an image of your own must contain it. A file system "
                "that the cluster made then refuses clients without TLS; one given with efs_id keeps the policy that "
                "it has. Set it for a new cluster, or for one whose machines have such an image, when all runs have "
                "ended (stop.yml -e run_id=all): site.yml requires TLS before it has mounted the file system anew on "
                "the nodes. Mounting with TLS was never tried on AWS.",
            ),
            Setting(
                "keep_efs",
                v.boolean,
                True,
                False,
                "Whether destroy.yml leaves the file system that the cluster made.",
            ),
            Setting(
                "s3_read",
                v.list_of(v.bucket),
                [],
                ["my-data/imagenet"],
                "S3 buckets, or bucket/prefix, that the machines may read.",
                blank=True,
            ),
            Setting(
                "s3_write",
                v.list_of(v.bucket),
                [],
                ["my-results/run1"],
                "S3 buckets, or bucket/prefix, that the machines may read and write. In the cluster's own bucket: its "
                "prefix `results`, or below it.",
                blank=True,
            ),
            Setting(
                "wheels",
                v.bucket,
                "",
                "my-tools/deeplearning",
                "A bucket, or bucket/prefix, for the wheels of Horovod that a cluster has built, so that others need "
                "not build them. It is used with your own login. Clusters that share one trust each other's root: "
                "docs/security.md. Empty: the cluster's bucket, which goes with it.",
                blank=True,
            ),
        ),
    ),
    (
        "Else",
        "",
        (
            Setting(
                "permissions_boundary",
                v.policy_arn,
                "",
                "arn:aws:iam::123456789012:policy/cluster-members",
                "An IAM policy that limits what the machines may do, whatever their roles say: the permissions "
                "boundary of these roles. Empty: none is set, and one that somebody has set stays.",
                blank=True,
            ),
            Setting(
                "tags",
                v.tags,
                {},
                {"team": "vision"},
                "Further tags for everything that can bear tags.",
                blank=True,
            ),
            Setting(
                "summary_file",
                v.path,
                "",
                "~/red.json",
                "Where site.yml writes what it made, as JSON. Empty: `.deeplearning/<cluster_name>.json` in the "
                "current folder.",
                blank=True,
            ),
        ),
    ),
)

TABLE: Mapping[str, Setting] = {
    setting.full_name: setting for _title, _text, settings in SECTIONS for setting in settings
}


@dataclass(frozen=True)
class Checked:
    cluster: dict[str, Any]
    problems: list[str]


def check(given: Mapping[str, Any], creating: bool = True) -> Checked:
    """Names of settings to what they were set to, checked. Where the cluster is not to be made or changed, what only
    its making needs may be absent."""
    cluster: dict[str, Any] = {}
    problems = [unknown(name) for name in sorted(given) if name not in TABLE]
    for setting in TABLE.values():
        value = given.get(setting.full_name)
        if _is_blank(value) and (setting.blank or setting.full_name not in given):
            cluster[setting.name] = setting.default
            continue
        try:
            cluster[setting.name] = setting.read(value)
        except Wrong as wrong:
            problems.append(sentence(setting, value, str(wrong)))
    # Rules between settings look at those alone that are right by themselves.
    for rule in _RULES if creating else ():
        problems += rule(cluster)
    for rule in _ALWAYS:
        problems += rule(cluster)
    return Checked(cluster, problems)


def is_setting(name: str) -> bool:
    """Whether a variable is meant as one of ours, known or not."""
    return name.startswith(PREFIX) and name not in NOT_SETTINGS and not name.startswith(FOREIGN)


def unknown(name: str) -> str:
    return f"{name} is no setting{_nearest(name)}."


def near_misses(extra_vars: Iterable[str]) -> list[str]:
    """Extra vars that are no settings, and look very much as if they should have been."""
    others = [name for name in extra_vars if not name.startswith(PREFIX)]
    return [
        unknown(name)
        for name in sorted(others)
        if PREFIX + name in TABLE or difflib.get_close_matches(name, TABLE, 1, 0.88)
    ]


def _nearest(name: str) -> str:
    if PREFIX + name in TABLE:
        return f": {PREFIX + name} is meant, perhaps"
    found = difflib.get_close_matches(name, TABLE, 1, 0.7)
    return f": {found[0]} is meant, perhaps" if found else ": docs/settings.md lists them all"


def sentence(setting: Setting, value: Any, what: str) -> str:
    """What is wrong, what was given, what to do."""
    return f"{setting.full_name} is {v.shown(value)}: {what}. Example: {as_option(setting)}"


def as_option(setting: Setting, value: Any = None) -> str:
    """How a value is given on the command line."""
    value = setting.example if value is None else value
    if isinstance(value, list | dict):
        return f"-e '{json.dumps({setting.full_name: value})}'"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"-e {setting.full_name}={text}"


def settings_in(option: str) -> str:
    """Return what an -e option of the command line sets of TABLE, as an option again; empty if that is nothing.

    So it can be printed and kept: no setting holds a secret (keys are given by their paths), but other variables may.
    """
    try:
        if option.lstrip().startswith("{"):
            settings = {name: value for name, value in yaml.safe_load(option).items() if name in TABLE}
            return json.dumps(settings, default=str) if settings else ""
        return " ".join(word for word in split_args(option) if word.partition("=")[0] in TABLE)
    except (AnsibleError, yaml.YAMLError):
        return ""


def _is_blank(value: Any) -> bool:
    return value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip())


def _example(name: str, value: Any = None) -> str:
    return as_option(TABLE[PREFIX + name], value)


# --- Rules between settings. Each looks only at what is there: a setting that is wrong by itself is absent. ---------


def _lengths(cluster: Mapping[str, Any]) -> Iterable[str]:
    name, region = cluster.get("name"), cluster.get("region")
    if name and region:
        # A bucket is <name>-<account of 12 digits>-<region>; an IAM role <name>-<region>-master, at most 64.
        most = min(63 - len(f"--{region}") - 12, 64 - len(f"-{region}-master"))
        if len(name) > most:
            yield (
                f"cluster_name is {name}: it has {len(name)} characters, and in {region} the cluster's bucket and "
                f"roles leave room for {most}. Example: {_example('name')}"
            )


def _zones(cluster: Mapping[str, Any]) -> Iterable[str]:
    region = cluster.get("region")
    wrong = [zone for zone in cluster.get("zones") or () if region and not zone.startswith(region)]
    if wrong:
        option = _example("zones", [f"{region}a"])
        yield f"cluster_zones names {', '.join(wrong)}: give zones of {region}, the cluster's region. Example: {option}"


def _workers(cluster: Mapping[str, Any]) -> Iterable[str]:
    count, least, policy = (cluster.get(key) for key in ("worker_count", "worker_min", "capacity_policy"))
    if count is None or policy is None or "worker_min" not in cluster:
        return
    if least is None:
        return
    if least > count:
        yield (
            f"cluster_worker_min is {least} and cluster_worker_count {count}: the least cannot be more than what is "
            f"asked for. Example: {_example('worker_min', count)}"
        )
    elif policy == "all_or_nothing" and least != count:
        yield (
            f"cluster_worker_min is {least}, which says nothing with cluster_capacity_policy all_or_nothing: leave "
            f"it out, or take {_example('capacity_policy', 'at_least')}"
        )


def _network(cluster: Mapping[str, Any]) -> Iterable[str]:
    vpc = cluster.get("vpc_id")
    if vpc is None:
        return
    for name in ("public_subnet_ids", "private_subnet_ids"):
        subnets = cluster.get(name)
        if vpc and subnets == []:
            yield (
                f"{PREFIX}{name} is not given: an existing VPC ({vpc}) needs its public and private subnets named. "
                f"Example: {_example(name)}"
            )
        elif not vpc and subnets:
            yield f"{PREFIX}{name} is given without the VPC that they belong to. Example: {_example('vpc_id')}"
    cidr, usual = cluster.get("vpc_cidr"), TABLE["cluster_vpc_cidr"].default
    if vpc and cidr not in (None, usual):
        yield (f"cluster_vpc_cidr is {cidr} and cluster_vpc_id {vpc}: give a network of its own or an existing one")
    both = set(cluster.get("public_subnet_ids") or ()) & set(cluster.get("private_subnet_ids") or ())
    if both:
        yield f"{', '.join(sorted(both))} is given as a public and as a private subnet: it can be one of them"


def _ssh(cluster: Mapping[str, Any]) -> Iterable[str]:
    places, anywhere = cluster.get("ssh_location"), cluster.get("ssh_anywhere")
    if places is None or anywhere is None:
        return
    if not places and not anywhere:
        yield (
            "cluster_ssh_location is not given: say from where the cluster may be reached by ssh, your own address "
            f"for example. Example: {_example('ssh_location')}"
        )
    wide = [place for place in places if ip_network(place).prefixlen < WIDEST]
    if wide and not anywhere:
        yield (
            f"cluster_ssh_location is {', '.join(wide)}: that lets the whole world try. Give your own networks, or "
            f"consent with {_example('ssh_anywhere')}. Example: {_example('ssh_location')}"
        )


def _keys(cluster: Mapping[str, Any]) -> Iterable[str]:
    name, file = cluster.get("key_name"), cluster.get("public_key_file")
    if name is None or file is None:
        return
    if not name and not file:
        yield (
            "cluster_key_name and cluster_public_key_file are both not given: one of them is needed to log in. "
            f"Example: {_example('public_key_file')}"
        )
    if name and file:
        yield (
            f"cluster_key_name is {name} and cluster_public_key_file {file}: give one of them. Example: "
            f"{_example('key_name')}"
        )
    elif file:
        yield from _told("public_key_file", file, v.public_key)
    private = cluster.get("private_key_file")
    if private:
        yield from _told("private_key_file", private, v.private_key)


def _told(name: str, value: str, read: Callable[[str], str]) -> Iterable[str]:
    try:
        read(value)
    except Wrong as wrong:
        yield sentence(TABLE[PREFIX + name], value, str(wrong))


_RULES: Sequence[Callable[[Mapping[str, Any]], Iterable[str]]] = (_workers, _network, _ssh, _keys)
_ALWAYS: Sequence[Callable[[Mapping[str, Any]], Iterable[str]]] = (_lengths, _zones)


def finished(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are right, with those filled in that follow from others."""
    done = dict(cluster)
    if done["worker_min"] is None:
        count = done["worker_count"]
        done["worker_min"] = {"all_or_nothing": count, "best_effort": 0}.get(done["capacity_policy"], min(1, count))
    done["master_instance_type"] = done["master_instance_type"] or done["instance_type"]
    if done["ssh_anywhere"] and not done["ssh_location"]:
        done["ssh_location"] = ["0.0.0.0/0"]
    if done["vpc_id"]:
        done["vpc_cidr"] = ""
    done["public_key"] = ""
    if done["public_key_file"] and Path(done["public_key_file"]).is_file():
        done["public_key"] = v.public_key(done["public_key_file"])
        beside = Path(done["public_key_file"]).with_suffix("")
        if not done["private_key_file"] and done["public_key_file"].endswith(".pub") and beside.is_file():
            done["private_key_file"] = str(beside)
    done["summary_file"] = done["summary_file"] or str(Path(".deeplearning", f"{done['name']}.json").absolute())
    return done
