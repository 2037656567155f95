# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Validate the settings of a cluster against AWS, and derive from both what to create."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..aws.client import Aws
from ..contract import run_cost
from ..contract.errors import UserError
from ..contract.names import EMR_LOGS, Names, domain
from ..contract.tables import join_names
from ..resources.member_policy import RESULTS, outside
from . import changes, data, duplicates, emr, gpus, machines, network, observed, prices
from .facts import AccountFacts, Cluster, InstanceType, gather_facts
from .findings import Finding, note, setting_problem

Plan = dict[str, Any]
PARTITION = "aws"


def make_plan(aws: Aws, options: changes.Options) -> tuple[Plan, list[str]]:
    """Return the plan, and the problems. With problems, the plan is incomplete."""
    check_region(aws)
    cluster = options["cluster"]
    named = options["remove_duplicates"]
    facts = gather_facts(aws, cluster, options["pins"], options["emr"], options["delete_actions"], named)
    if not options["recorded"]:
        options = {**options, "before": observed.differences(aws, facts, cluster)}
    findings = [*check(facts, cluster, options["gpu_tables"]), *changes.check(facts, cluster, options)]
    findings += observed.check(facts, cluster, options)
    findings += duplicates.check(facts, cluster, named)
    findings += gpus.check(facts, cluster, options["gpu_tables"])
    if dataset := options["dataset"]:
        findings += data.check(facts, cluster, dataset, data.size_gib(aws, dataset), options["data_on"])
    problems = [*facts.failures, *(finding.text for finding in findings if finding.is_problem)]
    plan = {
        **resolve(facts, cluster),
        "notes": [finding.text for finding in findings if not finding.is_problem],
        "changes": changes.lines(facts, cluster, options),
        "duplicates": duplicates.to_remove(facts, cluster, named),
    }
    lines = {name: [] if problems else render(cluster, plan, name == "brief") for name in ("lines", "brief")}
    return {**plan, **lines}, problems


def check_region(aws: Aws) -> None:
    """Raise UserError if the region does not exist, because no call could reach it, or is in another partition."""
    known = aws.regions()
    if aws.region not in known:
        near = aws.regions_like_this()
        hint = f"take {' or '.join(near)}" if near else "take another"
        raise UserError(
            f"cluster_region is {aws.region}: AWS has no such region (or boto3 is too old to know it), {hint}. "
            f"Example: -e cluster_region={near[0] if near else 'us-east-1'}"
        )
    if aws.partition != PARTITION:
        raise UserError(
            f"cluster_region is {aws.region}, which is in the partition {aws.partition}: the collection was made for "
            f"{PARTITION} alone, as services, names and images differ. Example: -e cluster_region=us-east-1"
        )


def check(
    facts: AccountFacts, cluster: Cluster, gpu_tables: Mapping[str, gpus.GpuTable] | None = None
) -> Iterator[Finding]:
    """Return all that prevents the plan, and notes."""
    yield from emr.check(facts, cluster)
    yield from _check_written_locations(facts, cluster)
    yield from machines.check_types(facts, cluster, gpu_tables)
    yield from machines.check_image(facts, cluster)
    yield from machines.check_quotas(facts, cluster)
    yield from machines.check_account_quotas(facts, cluster)
    yield from machines.check_disk_key(facts)
    yield from network.check_vpc(facts, cluster)
    yield from network.check_file_system(facts, cluster)
    yield from network.check_security_groups(facts, cluster)
    yield from network.choose_zones(facts, cluster)[1]
    yield from machines.check_key_pair(facts, cluster)
    yield from _check_foreign_actions(facts)
    yield from _check_max_hourly_cost(facts, cluster)


def _check_foreign_actions(facts: AccountFacts) -> Iterator[Finding]:
    """Name the scheduled actions of others, and refuse to start machines that one of them ends within the hour. Note
    which names to delete match none."""
    for action in facts.foreign_actions:
        soon = "; it would end the machines within the hour" if action.ends_soon else ""
        text = f"{action}{soon}. To delete it: ansible-playbook deeplearning.aws.site -e delete_actions={action.shown}"
        yield Finding(text, is_problem=action.ends_soon)
    for name in facts.unknown_actions:
        yield note(
            f"delete_actions names {name}, and no scheduled action of others has that name: nothing is deleted for it. "
            "status.yml prints their names."
        )


def _check_max_hourly_cost(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    limit = cluster["max_hourly_cost"]
    if limit is None or not facts.types:
        return
    cost = prices.hourly(facts.prices, cluster, facts.emr is not None)
    unknown = [part for part in cost["parts"] if part["each"] is None]
    accelerated = [part["what"] for part in unknown if facts.types.get(part["type"], {}).get("accelerated")]
    if accelerated:
        problem = (
            f"the price of {join_names(accelerated)} is not known, so it cannot be compared with the limit. Prices "
            "come from AWS's price list, which needs pricing:GetProducts. To go without a limit, give it empty"
        )
        yield setting_problem("max_hourly_cost", limit, problem, "")
    elif cost["amount"] > limit:
        problem = (
            f"with all machines the cluster costs up to {cost['amount']:.2f} {run_cost.CURRENCY} an hour (on demand; "
            f"{cost['source']}): take fewer or smaller machines, or raise this limit"
        )
        yield setting_problem("max_hourly_cost", limit, problem, math.ceil(cost["amount"]))
    elif unknown:
        missing = join_names([part["what"] for part in unknown])
        yield note(f"the price of {missing} is not known, so cluster_max_hourly_cost leaves it out.")


def _check_written_locations(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    """Refuse locations in the cluster's own bucket and in that of data sets where members must not write."""
    names = Names(cluster["name"], facts.account, facts.region)
    bucket = names.bucket
    logs = cluster["emr_log_uri"] if facts.emr else ""
    for setting, locations, prefix in (
        ("s3_write", cluster["s3_write"], RESULTS),
        ("emr_log_uri", [logs] if logs else [], EMR_LOGS),
    ):
        if outside(prefix, bucket, names.data_bucket, locations):
            allowed = f"{bucket}/{prefix}"
            yield setting_problem(
                setting,
                cluster[setting],
                f"{bucket} holds the reports of members and what they run as root, and {names.data_bucket} the data "
                f"sets of all clusters: give {allowed} or a prefix below it, or another bucket",
                [allowed] if isinstance(cluster[setting], list) else f"s3://{allowed}",
            )


def resolve(facts: AccountFacts, cluster: Cluster) -> Plan:
    """Return what to create, without notes. Empty parts are unknown or refused."""
    types = facts.types or {}
    master, worker = types.get(cluster["master_instance_type"], {}), types.get(cluster["instance_type"], {})
    names = Names(cluster["name"], facts.account, facts.region)
    vpc, file_system = network.vpc_of_plan(facts, cluster), network.file_system_of_plan(facts, cluster)
    return {
        "cluster": cluster["name"],
        "account": facts.account,
        "partition": facts.partition,
        "domain": domain(facts.partition),
        "region": facts.region,
        "exists": bool(facts.groups or facts.emr_clusters),
        "emr": emr.of_plan(facts, cluster),
        "ends": {kind: dict(of_groups) for kind, of_groups in facts.ends.items()},
        "delete_actions": [{"group": action.group, "name": action.name} for action in facts.actions_to_delete],
        "zones": network.choose_zones(facts, cluster)[0],
        "vpc": vpc,
        "image": machines.image_of_plan(facts),
        "user": machines.login_user(facts, cluster),
        "type": worker,
        "master_type": master,
        "placement_group": _resolve_auto(cluster["placement_group"], "placement", master, worker),
        "efa": _resolve_auto(cluster["efa"], "efa_cards", master, worker),
        "key_name": cluster["key_name"] or cluster["name"],
        "import_key": not cluster["key_name"],
        "groups": names.groups,
        "bucket": names.bucket,
        "efs": file_system,
        "file_system_changes": network.throughput_change(facts, cluster),
        "quotas": machines.quotas_of_plan(facts, cluster),
        "hourly": prices.hourly(facts.prices, cluster, facts.emr is not None, file_system["throughput"]),
    }


def _resolve_auto(setting: str, key: str, master: InstanceType, worker: InstanceType) -> bool:
    """Return the value of a setting; `auto` is true if both types support it."""
    return bool(master.get(key) and worker.get(key)) if setting == "auto" else setting == "true"


def render(cluster: Cluster, plan: Plan, brief: bool = False) -> list[str]:
    """Return the plan as lines of text. `brief`: without what follows from the settings, and the price in one line."""
    state = "exists, will be updated" if plan["exists"] else "will be created"
    rows = _rows(cluster, plan)
    if brief:
        rows = [row for row in rows if row[0] not in _IN_DETAIL]
        rows.append(("Price", prices.phrase(plan["hourly"])))
        rows += [("", sentence) for sentence in prices.access_sentences(plan["hourly"])[:1]]
    return [
        f"Cluster {plan['cluster']} in {plan['region']}, account {plan['account']}: {state}",
        *(f"  {label:<12} {text}" for label, text in rows),
        *([] if brief else ["Costs in USD, for as long as it exists:", *prices.lines(plan["hourly"])]),
    ]


_IN_DETAIL = ("Image", "Zone", "Bucket")


def _rows(cluster: Cluster, plan: Plan) -> list[tuple[str, str]]:
    worker, master, workers = plan["type"], plan["master_type"], cluster["worker_count"]
    kinds = f"of {worker['name']}" if master == worker else f"({master['name']} and {worker['name']})"
    gpus = f", {worker['gpus']} x {worker['gpu_name']} in each" if worker["gpus"] else ", no GPUs"
    spot = ", workers as spot instances" if cluster["spot"] and workers else ""
    extras = [name for name, enabled in (("placement group", plan["placement_group"]), ("EFA", plan["efa"])) if enabled]
    image, efs, vpc = plan["image"], plan["efs"], plan["vpc"]
    kept = ", kept" if image.get("kept") else ""
    image_words = f"{image['name']} ({image['id']}{kept})" if image else "its own image"
    source = f"{plan['emr']['release']} of EMR, " if plan["emr"] else ""
    if vpc["external"] or vpc["id"]:
        where = f"{vpc['id']} ({vpc['cidr']}), {'existing' if vpc['external'] else 'its own'}"
    else:
        where = f"a new one, {vpc['cidr']}"
    owner = "an existing one" if efs["external"] else "the cluster's own"
    files = f"{efs['id']}, {owner}" if efs["id"] else "a new one"
    changed = _changes_of_plan(plan)
    keep = "" if efs["external"] else (", kept by destroy.yml" if cluster["keep_efs"] else ", deleted by destroy.yml")
    zones = f", else {join_names(plan['zones'][1:])}" if len(plan["zones"]) > 1 else ""
    private = "" if cluster["public"] else ", to the master's private address"
    return [
        *(("" if index else "Changes", change) for index, change in enumerate(changed)),
        *(("Deletes", line) for line in plan["duplicates"]["lines"]),
        ("Machines", f"1 master and {workers} worker{'' if workers == 1 else 's'} {kinds}{gpus}{spot}"),
        (
            "",
            f"{cluster['capacity_policy']}, at least {cluster['worker_min']} of the workers"
            + (f"; {', '.join(extras)}" if extras else ""),
        ),
        ("Ends", _ends(cluster, bool(plan["emr"]))),
        ("Image", f"{source}{image_words}, user {plan['user']}"),
        ("Zone", f"{plan['zones'][0]}{zones}"),
        ("Network", where),
        ("Logging in", f"key pair {plan['key_name']}, from {join_names(cluster['ssh_allowed_cidrs'])}{private}"),
        ("File system", f"{files}, at {cluster['efs_mount']}{keep}"),
        ("Bucket", plan["bucket"]),
        *(("Note", note) for note in plan["notes"]),
    ]


def _changes_of_plan(plan: Plan) -> list[str]:
    """Return what changes as lines of text. A file system that was kept can change although the cluster is gone."""
    if not plan["exists"]:
        return list(plan["file_system_changes"])
    return list(plan["changes"]) or ["none of the settings"]


def _ends(cluster: Cluster, emr: bool) -> str:
    """Return when the machines end by themselves, or the settings that would have them end."""
    idle = "emr_idle_minutes" if emr else "idle_minutes"
    ends = [f"{cluster['ttl_hours']:g} hours after their creation"] * bool(not emr and cluster["ttl_hours"])
    ends += [f"after {cluster[idle]} minutes without work"] * bool(cluster[idle])
    settings = [] if emr else ["-e cluster_ttl_hours=8"]
    return " or ".join(ends) or f"never by themselves: {' or '.join([*settings, f'-e cluster_{idle}=60'])}"
