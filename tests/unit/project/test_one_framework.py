"""Adding a framework means one record, and one folder with its pins: everything else accepts it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
TABLE = "RECORDS: Mapping[str, Framework] = {\n"
RECORD = """\
    "caffe": Framework(
        distributions=("ddp",),
        package="torch",
        imports=("caffe", "torch"),
        pythons=("3.11",),
        kernels={"torch": ("libtorch_cuda.so",)},
        libraries={"debian": ("libcaffe1",)},
        variables={"CAFFE_LOG": "{run_dir}/caffe.log"},
        processor_variables={"CAFFE_MODE": "cpu"},
    ),
"""
ASKS = """
import json
from ansible_collections.deeplearning.aws.plugins.filter import core
from ansible_collections.deeplearning.aws.plugins.module_utils.node import horovod, python_env
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import run_options, settings
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers
from deeplearning.contract import cluster_config, frameworks, gpu_proof, run_request
from deeplearning.runs import plan, survey, variables
from tools import gpu_docs

train, image = run_options.options_of("train"), run_options.options_of("image")
node = plan.Node("deeplearning-master", "10.0.0.1", ports=(20000, 20001))
process = plan.Process(node.name, plan.WORKER, 0)
placed = plan.Plan("caffe", "ddp", (node,), (process,))
start = {"efs_mount": "/efs", "run_id": "one", "run_dir": "/run", "data": "", "attempt": 0, "processor": True}
own = variables.variables(start, placed, process)
environment = python_env.environment_of("caffe", {"cpu": "", "gpu": ""})
print(json.dumps({
    "options": [train["framework"].form("caffe"), image["image_frameworks"].form(["caffe"])],
    "setting": settings.TABLE["cluster_default_framework"].form("caffe"),
    "help": "caffe: ddp" in train["distribution"].help,
    "request": run_request.validate({"framework": "caffe", "requested_by": "me"})["framework"],
    "cluster_json": cluster_config.FIELDS["default_framework"]("caffe"),
    "answer": answers.framework("caffe"),
    "distribution": frameworks.default_distribution("caffe", 2, 0),
    "refused": frameworks.distribution_problem("mxnet", "ddp"),
    "gpu_package": gpu_proof.NodeGpus("caffe", "python", 1).package,
    "compared": "caffe" in survey.COMPARED,
    "variables": [own["CAFFE_LOG"], own["CAFFE_MODE"]],
    "environment": [*environment.pythons, *environment.imports, horovod.extra_package("caffe")],
    "pins": "caffe" in core.framework_pins([]),
    "table": gpu_docs.tables().splitlines()[0].endswith("| caffe |"),
}))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the collection with one more framework."""
    copy = tmp_path / "ansible_collections/deeplearning/aws"
    for folder in ("plugins", "files/node/deeplearning", "roles/framework", "tools"):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    records = copy / "plugins/module_utils/contract/frameworks.py"
    text = records.read_text(encoding="utf-8")
    head, _table, rest = text.partition(f"\n{TABLE}")
    others, end, functions = rest.partition("\n}\n")
    records.write_text(f"{head}\n{TABLE}{others}\n{RECORD.rstrip()}{end}{functions}", encoding="utf-8")
    files = copy / "roles/framework/files"
    shutil.copytree(files / "pytorch", files / "caffe")
    return copy


def test_a_framework_is_one_record_and_one_folder(checkout: Path) -> None:
    places = (checkout.parents[2], checkout / "files/node", checkout)
    ended = subprocess.run(
        [sys.executable, "-c", ASKS],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not ended.returncode, ended.stderr
    answered: dict[str, Any] = json.loads(ended.stdout)
    assert answered == {
        "options": ["caffe", ["caffe"]],
        "setting": "caffe",
        "help": True,
        "request": "caffe",
        "cluster_json": "caffe",
        "answer": "caffe",
        "distribution": "ddp",
        "refused": "distribution is ddp, which only pytorch or caffe has: give mxnet's dist_sync or dist_device_sync "
        "or dist_async or local or device. Example: -e distribution=dist_sync",
        "gpu_package": "torch",
        "compared": True,
        "variables": ["/run/caffe.log", "cpu"],
        "environment": ["3.11", "caffe", "torch", ""],
        "pins": True,
        "table": True,
    }
