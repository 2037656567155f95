"""Which framework computes on which GPU: the rule, the tables of the pinned packages, and what is said about it."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.filter.core import gpu_tables
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.frameworks import CUDNN_8, FRAMEWORKS, RECORDS
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.gpu_proof import LEAST_DRIVERS
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import gpu_types, gpus
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts, instance_type
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.gpu_types import Accelerator

from localcloud.testing.catalog import instance_types
from tests.unit.plugins.plan.facts_kit import FACTS, TYPE, cluster
from tools.framework_kernels import ARCHIVE, CUBIN, ENTRY, MAGIC, PTX, kernels
from tools.gpu_docs import PART, renewed

FILES = Path(__file__).resolve().parents[4] / "roles/framework/files"
TABLES = gpu_tables([])
NATIVE, SLOW, NONE, UNKNOWN = gpus.NATIVE, gpus.PTX, gpus.NONE, gpus.UNKNOWN

OFFLINE = {
    name: instance_type(described)
    for name, described in instance_types().items()
    if {"GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo"} & described.keys()
}
"""The offline type data: all types with something that could train."""


def test_the_offline_data_has_types_to_decide() -> None:
    assert len(OFFLINE) > 80 and {"g2.2xlarge", "p5.48xlarge", "p6-b300.48xlarge", "trn2.48xlarge"} <= OFFLINE.keys()


@pytest.mark.parametrize("name", sorted(OFFLINE))
def test_every_type_of_the_offline_data_is_decided_for_every_framework(name: str) -> None:
    kind = OFFLINE[name]
    accelerator = gpu_types.accelerator_of(name)
    assert accelerator is not None
    if kind["gpu_name"]:
        assert accelerator == (kind["gpu_maker"], kind["gpu_name"], kind["architectures"][0])
        assert gpu_types.number_of(name) == kind["gpus"]
        assert gpu_types.vcpus_of(name) in (kind["vcpus"], 0) or kind["gpus"] == 0
    elif kind["neuron_name"]:
        assert accelerator == ("AWS", kind["neuron_name"], "x86_64")
    for table in TABLES.values():
        decision = gpus.decide(table, accelerator)
        assert decision.level in (NATIVE, SLOW, NONE)
        assert bool(decision.reason) == (decision.level != NATIVE)
        better = gpus.alternatives(table, name)
        assert 1 <= len(better) <= 4
        for other in better:
            of_other = gpu_types.accelerator_of(other)
            assert of_other and gpus.decide(table, of_other).level == NATIVE
            assert OFFLINE[other]["gpus"] >= 1


@pytest.mark.parametrize(
    ("name", "tensorflow", "mxnet", "pytorch", "tensorpack"),
    [
        ("g2.2xlarge", NONE, NONE, NONE, NONE),
        ("p2.xlarge", NONE, NONE, NONE, NONE),
        ("g3.4xlarge", NONE, NATIVE, NONE, NATIVE),
        # cuDNN 9.28 has no kernels for Volta, although TensorFlow has.
        ("p3.2xlarge", NONE, NATIVE, NONE, NATIVE),
        ("g4dn.xlarge", NATIVE, NATIVE, NATIVE, NATIVE),
        ("p4d.24xlarge", NATIVE, NATIVE, NATIVE, NATIVE),
        ("g5.xlarge", NATIVE, NATIVE, NATIVE, NATIVE),
        ("g6.xlarge", NATIVE, NATIVE, NATIVE, NATIVE),
        ("g6e.xlarge", NATIVE, NATIVE, NATIVE, NATIVE),
        ("p5.48xlarge", NATIVE, NONE, NATIVE, SLOW),
        ("p5en.48xlarge", NATIVE, NONE, NATIVE, SLOW),
        ("p6-b200.48xlarge", SLOW, NONE, NATIVE, NONE),
        ("p6-b300.48xlarge", SLOW, NONE, NATIVE, NONE),
        ("g7e.2xlarge", SLOW, NONE, NATIVE, NONE),
        ("g5g.xlarge", NONE, NONE, NONE, NONE),
        ("p6e-gb200.36xlarge", NONE, NONE, NATIVE, NONE),
        ("g4ad.xlarge", NONE, NONE, NONE, NONE),
        ("trn1.2xlarge", NONE, NONE, NONE, NONE),
        ("inf2.xlarge", NONE, NONE, NONE, NONE),
    ],
)
def test_what_the_pinned_packages_compute_on(
    name: str, tensorflow: str, mxnet: str, pytorch: str, tensorpack: str
) -> None:
    accelerator = gpu_types.accelerator_of(name)
    assert accelerator
    levels = {framework: gpus.decide(table, accelerator).level for framework, table in TABLES.items()}
    assert levels == {"tensorflow": tensorflow, "mxnet": mxnet, "pytorch": pytorch, "tensorpack": tensorpack}


def table(*rows: tuple[list[str], str | None], machine: str = "x86_64") -> dict[str, Any]:
    return {
        "libraries": [
            {"machine": machine, "package": f"p{number}==1", "kernels": native, "ptx": ptx}
            for number, (native, ptx) in enumerate(rows)
        ]
    }


@pytest.mark.parametrize(
    ("rows", "gpu", "level"),
    [
        ([(["8.0"], None)], "A10G", NATIVE),
        ([(["8.9"], None)], "A10G", NONE),
        ([(["7.5", "9.0"], None)], "A10G", NONE),
        ([(["10.0"], None)], "B300", NATIVE),
        ([(["8.0"], "8.0")], "H100", SLOW),
        ([(["9.0"], "9.0")], "A10G", NONE),
        ([(["8.0"], None), (["8.0"], None)], "A10G", NATIVE),
        # The weakest library decides.
        ([(["9.0"], None), (["8.0"], None)], "H100", NONE),
        ([(["9.0"], None), (["8.0"], "8.6")], "H100", SLOW),
        ([(["8.0"], "8.0"), (["8.0"], None)], "H100", NONE),
        ([([], "8.0")], "H100", NONE),
        ([], "H100", NONE),
        ([(["8.0"], None)], "Z9000", UNKNOWN),
    ],
)
def test_the_rule(rows: list[tuple[list[str], str | None]], gpu: str, level: str) -> None:
    assert gpus.decide(table(*rows), Accelerator("NVIDIA", gpu)).level == level
    assert gpus.decide(table(*rows), Accelerator("AMD", gpu)).level == NONE
    if level != UNKNOWN:
        assert gpus.decide(table(*rows, machine="arm64"), Accelerator("NVIDIA", gpu)).level == NONE


def planned(framework: str, kind: dict[str, Any], **settings: Any) -> list[tuple[str, bool]]:
    described = {**TYPE, **kind}
    facts: AccountFacts = replace(FACTS, types={"g5.xlarge": TYPE, described["name"]: described})
    target = cluster(**{"instance_type": described["name"], "default_framework": framework, **settings})
    return [(finding.text, finding.is_problem) for finding in gpus.check(facts, target, TABLES)]


def test_the_plan_refuses_what_has_no_kernels_and_names_types_that_work() -> None:
    assert planned("mxnet", OFFLINE["p5.48xlarge"]) == [
        (
            "cluster_instance_type is p5.48xlarge: cluster_default_framework is mxnet, and mxnet-cu112==1.9.1 has "
            "kernels for compute capability 5.0, 6.0, 7.0, 8.0, 8.6, and not for 9.0 of its H100. Take p4d.24xlarge, "
            "p4de.24xlarge, g5.48xlarge, g6.48xlarge. Example: -e cluster_instance_type=p4d.24xlarge",
            True,
        )
    ]
    ((text, is_problem),) = planned("tensorpack", OFFLINE["p6-b200.48xlarge"])
    assert is_problem and "nvidia-cudnn-cu12==8.9.4.25 has kernels for" in text
    ((text, is_problem),) = planned("pytorch", OFFLINE["p3.2xlarge"])
    assert is_problem and "Take p5.4xlarge, g4dn.2xlarge, g5.2xlarge, g6.2xlarge." in text


def test_the_plan_notes_a_slow_first_start_with_its_duration() -> None:
    ((text, is_problem),) = planned("tensorpack", OFFLINE["p5.48xlarge"])
    assert not is_problem and text.startswith("tensorpack on p5.48xlarge: tensorflow==2.15.1 has kernels for")
    assert text.endswith("translates those for 8.0, which can take 30 minutes or longer on each node.")


@pytest.mark.parametrize(
    ("kind", "sentence", "is_problem"),
    [
        ({"gpu_maker": "AMD", "gpu_name": "Instinct"}, "it has AMD's Instinct, and the frameworks compute on", True),
        ({"gpu_name": "", "neuron_name": "Trainium9"}, "it has AWS's Trainium9, and the frameworks", True),
        ({"name": "dl2q.24xlarge", "gpu_name": ""}, "it has Qualcomm's AI100, and the frameworks", True),
        (
            {"gpu_name": "R300"},
            "the compute capability of its R300 is not known, so its kernels are not checked.",
            False,
        ),
    ],
)
def test_types_of_tomorrow_are_decided_by_what_ec2_says(kind: dict[str, Any], sentence: str, is_problem: bool) -> None:
    ((text, refused),) = planned("pytorch", {"name": "z9.48xlarge", **kind})
    assert refused is is_problem and sentence in text
    # EC2's word about a known type counts more than the table of this collection.
    assert planned("pytorch", {"name": "p2.xlarge", "gpu_name": "H100"}) == []


def test_the_plan_says_nothing_where_nothing_can_be_wrong() -> None:
    assert planned("mxnet", OFFLINE["g5.xlarge"]) == []
    assert planned("", OFFLINE["p5.48xlarge"]) == []
    without = {"gpu_name": "", "gpu_maker": "", "gpus": 0}
    assert planned("mxnet", {"name": "m5.large", **without}) == []
    # A master that does not train needs no kernels.
    master = {"instance_type": "g5.xlarge", "master_instance_type": "p5.48xlarge"}
    assert planned("mxnet", OFFLINE["p5.48xlarge"], **master, master_trains=False) == []
    ((text, _is_problem),) = planned("mxnet", OFFLINE["p5.48xlarge"], **master)
    assert text.startswith("cluster_master_instance_type is p5.48xlarge: ")
    target = cluster(default_framework="mxnet", instance_type="p5.48xlarge")
    assert list(gpus.check(replace(FACTS, types=None), target, TABLES)) == []
    assert list(gpus.check(replace(FACTS, types={}), target, TABLES)) == []


def member(number: int, name: str, count: int | None = None) -> dict[str, Any]:
    return {"name": f"deeplearning-worker{number}", "type": name, "gpus": count}


def test_a_run_is_refused_on_members_whose_gpus_it_cannot_use() -> None:
    members = [member(1, "g5.48xlarge", 8), member(2, "p5.48xlarge", 8), member(3, "p6-b200.48xlarge", 8)]
    problem, notes = gpus.check_members(TABLES["mxnet"], "mxnet", members)
    assert problem == (
        "framework is mxnet, and deeplearning-worker2 is a p5.48xlarge: mxnet-cu112==1.9.1 has kernels for compute "
        "capability 5.0, 6.0, 7.0, 8.0, 8.6, and not for 9.0 of its H100. Choose another framework, or a cluster of "
        "p4d.24xlarge, p4de.24xlarge, g5.48xlarge, g6.48xlarge. Example: -e cluster_instance_type=p4d.24xlarge"
    )
    assert notes == []
    assert gpus.check_members(TABLES["pytorch"], "pytorch", members) == ("", [])


def test_what_is_slow_or_unknown_is_noted_once_for_each_type() -> None:
    members = [
        member(1, "p5.48xlarge"),
        member(2, "p5.48xlarge"),
        member(3, "z9.48xlarge", 8),
        member(4, "m5.large", 0),
    ]
    problem, notes = gpus.check_members(TABLES["tensorpack"], "tensorpack", members)
    assert problem == "" and [note.partition(":")[0] for note in notes] == [
        "tensorpack on p5.48xlarge",
        "tensorpack on z9.48xlarge",
    ]
    assert notes[1].endswith("this collection does not know its GPU, so its kernels are not checked.")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_table_is_of_the_pinned_packages(framework: str) -> None:
    """Run tools/framework_kernels.py after a change of the pins."""
    content = json.loads((FILES / framework / "gpu.json").read_text(encoding="utf-8"))
    pins = (FILES / framework / "requirements-gpu.txt").read_text(encoding="utf-8")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d by tools/framework_kernels\.py", content["made"])
    for row in content["libraries"]:
        assert re.search(rf"^{re.escape(row['package'])} ", pins, re.MULTILINE), row["package"]
        assert row["ptx"] is None or row["library"] not in CUDNN_8
    read = [row["library"] for row in content["libraries"] if row["machine"] == "x86_64"]
    assert read == [library for libraries in RECORDS[framework].kernels.values() for library in libraries]
    runtime = re.search(r"^nvidia-cuda-runtime\S*==(\d+\.\d+)", pins, re.MULTILINE)
    assert runtime and content["cuda"] == runtime[1]
    assert content["driver"] == LEAST_DRIVERS[runtime[1].partition(".")[0]]


def test_the_guide_has_the_table() -> None:
    assert PART.read() == renewed(), "run .venv/bin/python tools/gpu_docs.py"


def library(*archives: Counter[tuple[int, int]]) -> bytes:
    """Return a file with archives that have so many entries of each kind and compute capability."""
    data = b"\x7fELF" + MAGIC + b"no archive"
    for archive in archives:
        entries = b""
        for (kind, capability), count in archive.items():
            head = ENTRY.pack(kind, 0, 64, 8, 0, 0, 0, 0, capability).ljust(64, b"\0")
            entries += (head + struct.pack("<Q", 1)) * count
        data += ARCHIVE.pack(struct.unpack("<I", MAGIC)[0], 1, ARCHIVE.size, len(entries)) + entries + b"padding"
    return data


def test_kernels_are_read_from_all_archives_of_a_library() -> None:
    most = Counter({(CUBIN, 80): 100, (CUBIN, 120): 100, (PTX, 90): 2})
    assert kernels(library(most, Counter({(CUBIN, 75): 2, (PTX, 70): 100}))) == (["7.5", "8.0", "12.0"], "9.0")
    # Entries for single kernels do not make a library compute on a GPU.
    assert kernels(library(most, most, Counter({(CUBIN, 89): 1, (PTX, 121): 1}))) == (["8.0", "12.0"], "9.0")
    assert kernels(library()) == ([], None)
