# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Decide whether a framework's pinned packages can compute on the GPUs of an instance type.

https://docs.nvidia.com/cuda/blackwell-compatibility-guide/ (read on 2026-11-24): machine code for a compute capability
runs on GPUs of the same major and the same or a higher minor one. PTX runs on all newer GPUs, after the driver has
translated it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..contract.tables import join_names
from .facts import AccountFacts, Cluster, InstanceType
from .findings import Finding, note, setting_problem
from .gpu_types import ARM, CAPABILITIES, FAMILIES, NVIDIA, X86, Accelerator, accelerator_of, number_of, vcpus_of

GpuTable = Mapping[str, Any]
"""The content of a framework's gpu.json: the libraries with the compute capabilities that they have kernels for."""

NATIVE, PTX, NONE, UNKNOWN = "native", "ptx", "none", "unknown"
_MOST_ALTERNATIVES = 4
_OLD = ("g2", "g3", "g3s", "p2", "p3", "p3dn")
"""Not recommended: AWS's current images have no driver for them, or a special one."""
_TRANSLATION = "30 minutes or longer"
"""How long TensorFlow says that the first start may take: https://github.com/tensorflow/tensorflow/issues/62320"""


class KernelDecision(NamedTuple):
    level: str
    """One of the constants above."""
    reason: str = ""
    """Why it is not NATIVE, as a sentence without its end."""


def is_old(family: str) -> bool:
    """Return whether AWS's current images have no driver for a family's GPUs, or only a special one."""
    return family in _OLD


def decide(table: GpuTable, accelerator: Accelerator) -> KernelDecision:
    """Decide whether a framework's packages compute on an accelerator."""
    maker, name, machine = accelerator
    if maker.lower() != NVIDIA.lower():
        return KernelDecision(NONE, f"it has {maker}'s {name}, and the frameworks compute on NVIDIA's GPUs alone")
    if name not in CAPABILITIES:
        return KernelDecision(
            UNKNOWN, f"the compute capability of its {name} is not known, so its kernels are not checked"
        )
    rows = [row for row in table["libraries"] if row["machine"] == machine]
    if not rows or not rows[0]["kernels"]:
        return KernelDecision(
            NONE, f"it is an {machine} machine, for which the framework's package has no kernels for GPUs"
        )
    capability = CAPABILITIES[name]
    missing = [row for row in rows if not _is_native(row, capability)]
    for row in missing:
        if not row["ptx"] or version(row["ptx"]) > version(capability):
            return KernelDecision(NONE, _lacking(row, name, capability))
    if not missing:
        return KernelDecision(NATIVE)
    row = missing[0]
    translated = f"the driver first translates those for {row['ptx']}, which can take {_TRANSLATION} on each node"
    return KernelDecision(PTX, f"{_lacking(row, name, capability)}: {translated}")


def _lacking(row: Mapping[str, Any], name: str, capability: str) -> str:
    has = join_names(row["kernels"])
    return f"{row['package']} has kernels for compute capability {has}, and not for {capability} of its {name}"


def _is_native(row: Mapping[str, Any], capability: str) -> bool:
    major, minor = version(capability)
    return any(major == version(kernel)[0] and minor >= version(kernel)[1] for kernel in row["kernels"])


def version(text: str) -> tuple[int, int]:
    major, _dot, minor = text.partition(".")
    return int(major), int(minor)


def alternatives(table: GpuTable, instance_type: str) -> list[str]:
    """Return types on which a framework runs natively, one of a family: first those with as many GPUs as a type, of its
    class and with about as many vCPUs."""
    number, vcpus, letter = number_of(instance_type), vcpus_of(instance_type), instance_type[:1]
    ranked: list[tuple[tuple[bool, bool, int], str]] = []
    for family, (accelerator, sizes) in FAMILIES.items():
        if accelerator.machine != X86 or is_old(family) or decide(table, accelerator).level != NATIVE:
            continue
        ranks = [
            ((count != number, family[0] != letter, abs(vcpus_of(f"{family}.{size}") - vcpus)), f"{family}.{size}")
            for count, names in sizes.items()
            for size in names.split()
            if count and vcpus_of(f"{family}.{size}")
        ]
        ranked += [min(ranks)] if ranks else []
    # Types of equal rank are in the order of FAMILIES.
    return [name for _rank, name in sorted(ranked, key=lambda item: item[0])][:_MOST_ALTERNATIVES]


def check(facts: AccountFacts, cluster: Cluster, tables: Mapping[str, GpuTable]) -> Iterator[Finding]:
    """Check the types of the nodes that train with cluster_default_framework."""
    framework, types = cluster["default_framework"], facts.types or {}
    if framework not in tables:
        return
    settings = ("instance_type", "master_instance_type") if cluster["master_trains"] else ("instance_type",)
    for name, setting in {cluster[setting]: setting for setting in reversed(settings)}.items():
        accelerator = _described_accelerator(types[name]) if name in types else None
        if not accelerator:
            continue
        decision = decide(tables[framework], accelerator)
        if decision.level == NONE:
            better = alternatives(tables[framework], name)
            problem = f"cluster_default_framework is {framework}, and {decision.reason}. Take {join_names(better)}"
            yield setting_problem(setting, name, problem, better[0])
        elif decision.level != NATIVE:
            yield note(f"{framework} on {name}: {decision.reason}.")


def _described_accelerator(kind: InstanceType) -> Accelerator | None:
    """Return what EC2 says that a type has. None if that is nothing that could train."""
    machine = ARM if ARM in kind["architectures"] else X86
    if kind["gpu_name"]:
        return Accelerator(kind["gpu_maker"], kind["gpu_name"], machine)
    if kind["neuron_name"]:
        return Accelerator("AWS", kind["neuron_name"], machine)
    return accelerator_of(kind["name"])


def check_members(table: GpuTable, framework: str, members: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """Return why a framework cannot train on all members, as a sentence, and remarks. Members have a name, a type and
    the number of their GPUs, if it is known."""
    notes: list[str] = []
    first_of_type = {member["type"]: member for member in reversed(members)}
    for name, member in reversed(first_of_type.items()):
        accelerator = accelerator_of(name)
        if accelerator:
            decision = decide(table, accelerator)
        elif member.get("gpus"):
            decision = KernelDecision(UNKNOWN, "this collection does not know its GPU, so its kernels are not checked")
        else:
            continue
        if decision.level == NONE:
            better = alternatives(table, name)
            return (
                f"framework is {framework}, and {member['name']} is a {name}: {decision.reason}. Choose another "
                f"framework, or a cluster of {join_names(better)}. Example: -e cluster_instance_type={better[0]}"
            ), notes
        if decision.level != NATIVE:
            notes.append(f"{framework} on {name}: {decision.reason}.")
    return "", notes
