# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The plan: settings held against AWS, and what follows from both.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils import _plan_machines as machines
from ansible_collections.deeplearning.aws.plugins.module_utils import _plan_network as network
from ansible_collections.deeplearning.aws.plugins.module_utils import _prices
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._member_policy import RESULTS, outside_results
from ansible_collections.deeplearning.aws.plugins.module_utils._names import Names
from ansible_collections.deeplearning.aws.plugins.module_utils._plan_ask import Ask
from ansible_collections.deeplearning.aws.plugins.module_utils._telling import listed

Facts = dict[str, Any]
Cluster = Mapping[str, Any]


def check_region(aws: Aws) -> None:
    """Before anything is asked: a region that does not exist has no address to ask at."""
    known = aws.regions()
    if aws.region not in known:
        near = difflib.get_close_matches(aws.region, known, 3, 0.6)
        hint = f"take {' or '.join(near)}" if near else "take another"
        raise AwsProblem(
            f"cluster_region is {aws.region}: AWS has no such region (or boto3 is too old to know it), {hint}. "
            f"Example: -e cluster_region={near[0] if near else 'us-east-1'}",
            "Login",
        )


def make(aws: Aws, cluster: Cluster) -> tuple[Facts, list[str]]:
    """The plan, and what stands in its way: then the plan is not whole."""
    check_region(aws)
    ask = Ask(aws)
    caller = aws.call("sts", "get_caller_identity")
    account, partition = str(caller["Account"]), str(caller["Arn"]).split(":")[1]
    names = Names(cluster["name"], account, aws.region)

    if outside_results(names.bucket, cluster["s3_write"]):
        results = f"{names.bucket}/{RESULTS}"
        ask.wrong(
            "s3_write",
            cluster["s3_write"],
            f"{names.bucket} is the cluster's own bucket, where members report themselves and data sets lie; give "
            f"{results} or a place below it, or another bucket",
            [results],
        )
    groups = network.groups(ask, cluster["name"]) or []
    types = machines.types(ask, cluster)
    master, worker = types.get(cluster["master_instance_type"]), types.get(cluster["instance_type"])
    image = machines.image(ask, cluster, list(types.values()))
    quotas: list[Facts] = []
    if master and worker:
        machines.fit_together(ask, cluster, master, worker)
        quotas = machines.quota(ask, cluster, master, worker)
    vpc = (
        network.given_vpc(ask, cluster, cluster["worker_count"]) if cluster["vpc_id"] else network.own_vpc(ask, cluster)
    )
    efs = network.file_systems(ask, cluster, vpc["id"])
    network.security_groups(ask, cluster, vpc["id"])
    zones = _zones(ask, cluster, types, vpc, efs, network.zone_of_machines(groups))
    key_name = machines.key_pair(ask, cluster)

    plan: Facts = {
        "cluster": cluster["name"],
        "account": account,
        "partition": partition,
        "region": aws.region,
        "exists": bool(groups),
        "zones": zones,
        "vpc": vpc,
        "image": {key: value for key, value in (image or {}).items() if key != "user"},
        "user": cluster["user"] or (image or {}).get("user", ""),
        "type": worker or {},
        "master_type": master or {},
        "placement_group": _wanted(cluster["placement_group"], "placement", master, worker),
        "efa": _wanted(cluster["efa"], "efa_interfaces", master, worker),
        "key_name": key_name,
        "import_key": not cluster["key_name"],
        "bucket": names.bucket,
        "names": names.as_dict(),
        "efs": efs,
        "kept_efs_id": "" if efs["given"] else efs["id"],
        "quotas": quotas,
        "hourly": _prices.hourly(
            aws.region,
            cluster["master_instance_type"],
            cluster["instance_type"],
            cluster["worker_count"],
            cluster["spot"],
            cluster["root_volume_gib"],
            not vpc["given"],
        ),
        "notes": ask.notes,
    }
    plan["lines"] = [] if ask.problems else lines(cluster, plan)
    return plan, ask.problems


def _zones(ask: Ask, cluster: Cluster, types: Mapping[str, Facts], vpc: Facts, efs: Facts, occupied: str) -> list[str]:
    """The zones to try, of those that have the types: where the machines are already, where the subnets are, where a
    file system of one zone is."""
    wanted = (cluster["instance_type"], cluster["master_instance_type"])
    # A type that does not exist has been told of already.
    fit = network.zones(ask, cluster, [name for name in wanted if name in types])
    limits = []
    if occupied:
        limits.append(([occupied], f"the cluster's machines are in {occupied} and do not move"))
    if vpc["given"] and vpc["subnets"]:
        limits.append((sorted(vpc["subnets"]), f"the given subnets are in {listed(sorted(vpc['subnets']))}"))
    if efs["zone"]:
        limits.append(([efs["zone"]], f"the file system {efs['id']} is in {efs['zone']} alone"))
    for allowed, why in limits:
        left = [zone for zone in fit if zone in allowed]
        if fit and not left:
            ask.problems.append(f"The cluster cannot be in {listed(fit)}, which could have it otherwise: {why}.")
        fit = left
    return fit


def _wanted(setting: str, key: str, master: Facts | None, worker: Facts | None) -> bool:
    """auto: if both types can."""
    able = bool(master and worker and master[key] and worker[key])
    return able if setting == "auto" else setting == "true"


def lines(cluster: Cluster, plan: Facts) -> list[str]:
    """The plan for a person."""
    worker, master, workers = plan["type"], plan["master_type"], cluster["worker_count"]
    kinds = f"of {worker['name']}" if master == worker else f"({master['name']} and {worker['name']})"
    gpus = f", {worker['gpus']} x {worker['gpu_name']} in each" if worker["gpus"] else ", no GPUs"
    spot = ", workers as spot instances" if cluster["spot"] and workers else ""
    extras = [word for word, there in (("placement group", plan["placement_group"]), ("EFA", plan["efa"])) if there]
    image, efs, vpc = plan["image"], plan["efs"], plan["vpc"]
    if vpc["given"] or vpc["id"]:
        where = f"{vpc['id']} ({vpc['cidr']}), {'existing' if vpc['given'] else 'its own'}"
    else:
        where = f"a new one, {vpc['cidr']}"
    kept = "an existing one" if efs["given"] else "the cluster's own"
    files = f"{efs['id']}, {kept}" if efs["id"] else "a new one"
    keep = "" if efs["given"] else (", kept by destroy.yml" if cluster["keep_efs"] else ", deleted by destroy.yml")
    told = [
        f"Cluster {plan['cluster']} in {plan['region']}, account {plan['account']}: "
        + ("it exists and is brought in line" if plan["exists"] else "to be made"),
        f"  Machines     1 master and {workers} worker{'' if workers == 1 else 's'} {kinds}{gpus}{spot}",
        f"               {cluster['capacity_policy']}, at least {cluster['worker_min']} of the workers"
        + (f"; {', '.join(extras)}" if extras else ""),
        f"  Image        {image['name']} ({image['id']}{', kept' if image['kept'] else ''}), user {plan['user']}",
        f"  Zone         {plan['zones'][0]}"
        + (f", else {listed(plan['zones'][1:])}" if len(plan["zones"]) > 1 else ""),
        f"  Network      {where}",
        f"  Logging in   key pair {plan['key_name']}, from {listed(cluster['ssh_location'])}",
        f"  File system  {files}, at {cluster['efs_mount']}{keep}",
        f"  Bucket       {plan['bucket']}",
        *(f"  Note         {note}" for note in plan["notes"]),
        "Costs in USD, for as long as it exists:",
        *_prices.lines(plan["hourly"]),
    ]
    return told
