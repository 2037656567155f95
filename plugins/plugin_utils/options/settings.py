# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The settings of a cluster, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...module_utils.contract.frameworks import FRAMEWORKS
from ...module_utils.resources.file_system import THROUGHPUT_MODES
from . import readers as r
from .option import Option

PREFIX = "cluster_"
NOT_RECORDED = (
    *("cluster_name", "cluster_region", "cluster_profile", "cluster_role_arn"),
    # Of this machine.
    *("cluster_public_key_file", "cluster_private_key_file", "cluster_bastion", "cluster_summary_file"),
    # What they remove, they remove for the playbook that gets them.
    *("cluster_ssh_purge_rules", "cluster_keep_efs"),
)
"""Settings that apply only where they are given. The others stay as they are until a playbook gets another value."""
REMOVED = {"cluster_setup": "machines configure themselves when they boot"}
"""Settings of earlier versions, and what holds instead."""

MOST_NODES = 256
"""Of a cluster: the most that bench/scale.py measures a run with."""
_WORKERS = r.integer(0, MOST_NODES - 1, f"runs were measured with up to {MOST_NODES} nodes, the master included")

SECTIONS: Sequence[tuple[str, str, Sequence[Option]]] = (
    (
        "Which cluster",
        "These are set in `inventory/aws.deeplearning.yml`. Extra vars (`-e`) override it.",
        (
            Option(
                "cluster_name",
                r.name.by_default("deeplearning"),
                "The cluster's name. Everything that it owns in AWS is tagged with it.",
            ),
            Option("cluster_region", r.region.by_default("us-east-1"), "The AWS region of the cluster."),
            Option(
                "cluster_profile",
                r.text.such_as("research"),
                "The AWS profile to log in with. Empty: the default credentials of the AWS tools.",
            ),
            Option(
                "cluster_role_arn",
                r.role_arn.such_as("arn:aws:iam::123456789012:role/operator"),
                "An IAM role to assume with these credentials.",
            ),
        ),
    ),
    (
        "Machines",
        "",
        (
            Option(
                "cluster_instance_type",
                r.instance_type.by_default("g5.xlarge"),
                "The EC2 instance type of the workers, and of the master unless `cluster_master_instance_type` is set.",
            ),
            Option(
                "cluster_master_instance_type",
                r.instance_type,
                "The master's instance type, if it differs. The master trains too, so it must have as many GPUs.",
            ),
            Option(
                "cluster_master_trains",
                r.boolean.by_default(True),
                "Train on the master too. If false, the master is left out of the workers file and may be a type "
                "without GPUs.",
            ),
            Option(
                "cluster_worker_count",
                _WORKERS.such_as(4).by_default(1),
                "Number of workers, in addition to the master: with N workers, N + 1 machines train.",
            ),
            Option(
                "cluster_worker_min",
                _WORKERS.such_as(2),
                "Minimum number of workers to proceed with. Empty: 1 with the capacity policy at_least, worker_count "
                "with all_or_nothing, 0 with best_effort.",
            ),
            Option(
                "cluster_capacity_policy",
                r.mode("at_least", "all_or_nothing", "best_effort"),
                "What to do when AWS has fewer machines than requested. at_least: proceed if there are worker_min or "
                "more. all_or_nothing: release all of them and fail. best_effort: proceed with any number.",
            ),
            Option(
                "cluster_image",
                r.image.by_default("base-oss-nvidia-driver-gpu-ubuntu-22.04"),
                "The machines' image: a family of AWS's Deep Learning AMIs (its newest image is looked up once and "
                "then kept), or the id of an AMI. Its system has Python 3.11 or newer, or a package of it.",
            ),
            Option("cluster_login_user", r.user, "The user to log in as. Empty: the image's own, such as ubuntu."),
            Option(
                "cluster_root_volume_gib",
                r.integer(8, 16384).such_as(200).by_default(100),
                "Size of each machine's root volume, in GiB.",
            ),
            Option("cluster_root_volume_type", r.mode("gp3", "gp2"), "Type of the root volumes."),
            Option(
                "cluster_root_volume_throughput",
                r.integer(125, 750).such_as(500),
                "MiB/s of each root volume of type gp3. Empty: AWS's default, 125.",
            ),
            Option(
                "cluster_placement_group",
                r.automatic,
                "Use a cluster placement group: lower latency between machines, but capacity is harder to get. auto: "
                "if the instance type supports it.",
            ),
            Option(
                "cluster_efa",
                r.automatic,
                "Attach AWS's fast network adapter (EFA). auto: if the instance type supports it.",
            ),
            Option(
                "cluster_spot",
                r.flag,
                "Launch workers as spot instances: cheaper, but AWS may take them back. The master is never one.",
            ),
            Option(
                "cluster_default_framework",
                r.choice(*FRAMEWORKS).such_as("pytorch").by_default(""),
                "The framework whose python and python3 login shells find. Empty: none, they are activated by name.",
            ),
            Option(
                "cluster_monitoring",
                r.flag,
                "Run Prometheus on the master and its node exporter on all machines: docs/monitoring.md. This needs an "
                "image of Debian or Ubuntu.",
            ),
            Option(
                "cluster_capacity_timeout_minutes",
                r.integer(1, 1440).such_as(90).by_default(55),
                "Minutes to wait until all machines are in service.",
            ),
        ),
    ),
    (
        "Logging in",
        "Give exactly one of `cluster_key_name` and `cluster_public_key_file`.",
        (
            Option(
                "cluster_ssh_allowed_cidrs",
                r.networks,
                "**Required.** The networks that may reach the master by ssh; a single address is fine. "
                "`curl https://checkip.amazonaws.com` prints yours.",
            ),
            Option(
                "cluster_ssh_allow_world",
                r.flag,
                "Consent to ssh being open to the whole world (logging in still requires a key).",
            ),
            Option("cluster_ssh_purge_rules", r.flag, "Remove ssh rules that were added by hand."),
            Option("cluster_key_name", r.text.such_as("my-key"), "The EC2 key pair to log in with."),
            Option(
                "cluster_public_key_file",
                r.path.such_as("~/.ssh/id_ed25519.pub"),
                "A public key (RSA or Ed25519) on this machine to log in with. It is imported as a key pair with the "
                "cluster's name.",
            ),
            Option(
                "cluster_private_key_file",
                r.path.such_as("~/.ssh/id_ed25519"),
                "The matching private key; it stays on this machine. Empty: the file next to the public key, "
                "otherwise what ssh finds by itself.",
            ),
        ),
    ),
    (
        "Network",
        "A network of its own (`cluster_vpc_cidr`), or an existing one (`cluster_vpc_id` and subnets).",
        (
            Option(
                "cluster_vpc_cidr",
                r.vpc_cidr.by_default("10.0.0.0/16"),
                "The addresses of the cluster's own network. Its halves are the public and the private subnet.",
            ),
            Option("cluster_vpc_id", r.resource_id("vpc"), "An existing VPC to use instead."),
            Option(
                "cluster_public",
                r.boolean.by_default(True),
                "Give the master a public address. false: it is in the private subnet with the workers, and you reach "
                "it through a VPN or a bastion of yours.",
            ),
            Option(
                "cluster_bastion",
                r.bastion.such_as("me@bastion.example.org"),
                "The host through which ssh reaches the master, as `~/.ssh/config` on this machine knows it.",
            ),
            Option(
                "cluster_public_subnet_ids",
                r.list_of(r.resource_id("subnet")),
                "With an existing VPC: its subnets with a route to an internet gateway, for the master. One per zone.",
            ),
            Option(
                "cluster_private_subnet_ids",
                r.list_of(r.resource_id("subnet")).such_as(["subnet-0fedcba9876543210"]),
                "With an existing VPC: its subnets with a route to a NAT gateway, for the workers (with "
                "`cluster_public=false`, for the master as well). One per zone.",
            ),
            Option(
                "cluster_availability_zones",
                r.list_of(r.zone).such_as(["us-east-1a", "us-east-1b"]),
                "Availability zones to try, in this order. The whole cluster is in one. Empty: all that have the "
                "instance type.",
            ),
            Option(
                "cluster_security_group_ids",
                r.list_of(r.resource_id("sg")),
                "Additional security groups for all machines.",
            ),
        ),
    ),
    (
        "Storage",
        "",
        (
            Option(
                "cluster_efs_id",
                r.resource_id("fs"),
                "An existing EFS file system to use. Empty: the one that this cluster kept, or a new one. Clusters "
                "that share a file system can run code on each other: docs/security.md.",
            ),
            Option(
                "cluster_efs_mount",
                r.mount_point.such_as("/efs").by_default("/efs"),
                "The file system's mount point on the nodes.",
            ),
            Option(
                "cluster_efs_tls",
                r.flag,
                "Mount the file system with TLS. This needs an image with amazon-efs-utils: Amazon Linux has a "
                "package of it, other families are refused, and an image of your own must contain it. A file system "
                "that the cluster created then refuses clients without TLS; one given with efs_id keeps its policy. "
                "Set it for a new cluster, or for one whose machines have such an image after all runs have ended "
                "(deeplearning.aws.stop -e run_id=all): site.yml requires TLS before it remounts the file system on "
                "the nodes. "
                "Mounting with TLS was never tried on AWS.",
            ),
            Option(
                "cluster_efs_throughput",
                r.choice(*THROUGHPUT_MODES).such_as("bursting").by_default(""),
                "The throughput mode of the cluster's file system. elastic: fast at any size, and each GB that is read "
                "or written is billed. bursting: reads and writes are free, and the rate depends on how much is "
                "stored. Empty: elastic for a new file system; one that exists keeps its mode. AWS may refuse a change "
                "for 24 hours after the last one. A file system named by efs_id is never changed: docs/costs.md.",
            ),
            Option(
                "cluster_keep_efs",
                r.boolean.by_default(True),
                "Keep the file system that the cluster created when destroy.yml removes the cluster.",
            ),
            Option(
                "cluster_s3_read",
                r.list_of(r.bucket).such_as(["my-data/imagenet"]),
                "S3 buckets, or bucket/prefix, that the machines may read.",
            ),
            Option(
                "cluster_s3_write",
                r.list_of(r.bucket).such_as(["my-results/run1"]),
                "S3 buckets, or bucket/prefix, that the machines may read and write. In the cluster's own bucket: the "
                "prefix `results`, or below it.",
            ),
            Option(
                "cluster_s3_kms_keys",
                r.list_of(r.kms_key).such_as(
                    ["arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"]
                ),
                "KMS keys that encrypt these buckets: the machines may use them through S3 alone.",
            ),
        ),
    ),
    (
        "EMR",
        "For `emr.yml`, which makes the cluster of EMR's machines: the master is its primary node, the workers are its "
        "core nodes. The other settings apply too, apart from those about Auto Scaling: docs/emr.md.",
        (
            Option(
                "cluster_emr_release",
                r.emr_release,
                "EMR's release. Empty: the newest 7.x that the region lists. A cluster keeps the one that it was "
                "created with.",
            ),
            Option(
                "cluster_emr_applications",
                r.list_of(r.emr_application).such_as(["Hadoop", "Spark"]).by_default(["Hadoop"]),
                "The applications of the release to install.",
            ),
            Option(
                "cluster_emr_log_uri",
                r.bucket.such_as("s3://my-logs/emr"),
                "A bucket of this account or bucket/prefix, for EMR's logs. In the cluster's own bucket only `emr-logs`"
                " and prefixes below it are allowed, and in that of data sets none. Empty: `emr-logs` in the cluster's "
                "bucket, which is deleted with the cluster.",
            ),
            Option(
                "cluster_emr_idle_minutes",
                r.or_never(r.integer(0, 10080)).such_as(180).by_default(60),
                "EMR ends the cluster after so many minutes without a run, a step or a YARN application. 0 or never: "
                "no end.",
            ),
            Option(
                "cluster_emr_yarn_percent",
                r.integer(10, 100).such_as(50).by_default(25),
                "The share of each core node's memory and processors that YARN may give to its applications. Training "
                "runs next to YARN, not in it.",
            ),
            Option(
                "cluster_emr_termination_protection",
                r.flag,
                "Have EMR refuse to end the cluster for anybody else. `destroy.yml` lifts it.",
            ),
            Option(
                "cluster_emr_replace_unhealthy",
                r.boolean.by_default(True),
                "Have EMR replace core nodes that do not answer. The new one configures itself and becomes a member.",
            ),
        ),
    ),
    (
        "Costs",
        "docs/costs.md has what a cluster costs, and how to end it.",
        (
            Option(
                "cluster_max_hourly_cost",
                r.or_empty(r.number(0, 1_000_000)).such_as(25).by_default(50),
                "What the cluster may cost an hour with all its machines, in USD. Settings that cost more are refused "
                "before anything is created, and so are accelerated types whose price cannot be read from AWS's price "
                "list. Empty: no limit.",
            ),
        ),
    ),
    (
        "The end of the machines",
        "AWS itself ends the machines at these times, also when your own machine is off and no node answers. The file "
        "system stays, and `site.yml` brings the machines back. The reasons: docs/decisions/011-money-guard.md.",
        (
            Option(
                "cluster_ttl_hours",
                r.or_never(r.number(0, 8760)).such_as(8).by_default(0),
                "All machines end so many hours after `site.yml` has created them, or brought them back. Runs save a "
                "checkpoint before. `deeplearning.aws.extend` postpones it. 0 or never: no end.",
            ),
            Option(
                "cluster_idle_minutes",
                r.or_never(r.integer(0, 10080)).such_as(60).by_default(0),
                "All machines end after so many minutes without a run that progresses, a login, staging, an upload, an "
                "installation or work of a processor. The master postpones the end while there is any, so they end "
                "without a master too. 0 or never: no end.",
            ),
        ),
    ),
    (
        "Other settings",
        "",
        (
            Option(
                "cluster_permissions_boundary",
                r.policy_arn.such_as("arn:aws:iam::123456789012:policy/deeplearning-members-boundary"),
                "An IAM policy that limits what the machines may do, whatever their roles allow: the permissions "
                "boundary of these roles. The operators' policies require the one of docs/iam.md. Empty: none is set, "
                "and an existing one stays.",
            ),
            Option("cluster_tags", r.tags, "Additional tags for everything that can be tagged."),
            Option(
                "cluster_summary_file",
                r.path.such_as("~/red.json"),
                "Where site.yml and status.yml save the cluster's summary as JSON. Empty: `<cluster_name>.json` in the "
                "inventory's `folder`, which is `.deeplearning`.",
            ),
        ),
    ),
)

TABLE: Mapping[str, Option] = {option.name: option for _title, _text, options in SECTIONS for option in options}
