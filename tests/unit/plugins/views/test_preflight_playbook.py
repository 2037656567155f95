"""What train.yml prints of the preflight, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import problems

ROOT = Path(__file__).resolve().parents[4]
FAILURE = (
    f"fatal: [red]: The preflight fails: the sum is wrong. What to do: {problems.CHECKS['all-reduce'].advice}. "
    "To train regardless: -e preflight=false"
)


@pytest.mark.parametrize(
    ("detail", "code", "line"),
    [("8 ranks", 0, "The preflight passes: 8 ranks"), ("the sum is wrong", 2, FAILURE)],
)
def test_the_result_of_the_preflight_is_printed(tmp_path: Path, detail: str, code: int, line: str) -> None:
    (train,) = (play for play in yaml.safe_load((ROOT / "playbooks/train.yml").read_text()) if play["name"] == "Train")
    (report,) = (task for task in train["tasks"] if "preflight" in task["name"])
    check = {"name": "all-reduce", "ok": code == 0, "detail": detail}
    answer = {"stdout": json.dumps({"framework": "pytorch", "checks": [check]})}
    variables = {"__cluster": {"name": "red"}, "train_preflight": answer}
    play = {"hosts": "red", "gather_facts": False, "vars": variables, "tasks": [report]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play], width=1000))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "red,", str(tmp_path / "play.yml")],
        cwd=ROOT,
        env={"HOME": str(tmp_path), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_INVENTORY_ENABLED": "host_list"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert line in done.stdout.splitlines(), done.stdout
