"""What the callback `short` prints: changes, messages and the sentences of failures, and nothing of the rest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.steps import reason

ROOT = Path(__file__).resolve().parents[3]
# They need no process of their own on the node.
UNCHANGED = {"ansible.builtin.assert": {"that": True}}
CHANGED = {**UNCHANGED, "changed_when": True}
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
PLAYS: list[dict[str, Any]] = [
    {
        "name": "Create things",
        "hosts": "red:blue",
        "tasks": [
            {"name": "Look", **UNCHANGED},
            {"name": "Skip", **CHANGED, "when": False},
            {"name": "Create", **CHANGED, "run_once": True},
            {"name": "Create all", **CHANGED, "loop": ["one", "two"], "run_once": True},
            {"name": "Include", "ansible.builtin.include_tasks": "more.yml"},
            {"name": "Print", "ansible.builtin.debug": {"msg": "first line\nsecond line"}},
            {"name": "Print lines", "ansible.builtin.debug": {"msg": ["third line", "  fourth line"]}},
            {"name": "Install (some minutes)", **UNCHANGED},
            {"name": "Wait", **UNCHANGED, "register": "waited", "until": "waited.attempts > 2", "delay": 0},
        ],
    },
    {"name": "Reach no host", "hosts": "empty", "tasks": [{"name": "Never", **CHANGED}]},
    {"name": "Change nothing", "hosts": "red", "tasks": [{"name": "Look", **UNCHANGED}]},
    {"name": "Speak", "hosts": "red", "tasks": [{"name": "Print", "ansible.builtin.debug": {"msg": "a sentence"}}]},
    {"name": "Try", "hosts": "red", "check_mode": True, "tasks": [{"name": "Create", **CHANGED}]},
    {
        "name": "Fail",
        "hosts": "red",
        "tasks": [{"name": "Look", **UNCHANGED}, {"name": "Break", "ansible.builtin.fail": {"msg": "a reason"}}],
    },
]


def play(folder: Path, *options: str, playbook: str = "play.yml") -> str:
    """Return what the plays print. The last one fails."""
    (folder / "more.yml").write_text(json.dumps([{"name": "Included", **UNCHANGED}]))
    (folder / "hosts.yml").write_text(
        json.dumps({"all": {"hosts": {"red": HERE, "blue": HERE}, "children": {"empty": {}}}}), encoding="utf-8"
    )
    (folder / "play.yml").write_text(json.dumps(PLAYS))
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(folder / "hosts.yml")),
            *(str(folder / playbook), *options),
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_INVENTORY_ENABLED": "yaml"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each play prints, by its title, and the recap."""
    _begin, *parts = re.split(r"(?m)^PLAY (.*)\n", play(tmp_path_factory.mktemp("short")))
    return {title.strip(" *"): lines.rstrip("\n") for title, lines in zip(parts[::2], parts[1::2], strict=True)}


def test_changes_messages_and_long_tasks_are_a_line_each(plays: dict[str, str]) -> None:
    assert plays["[Create things]"].splitlines() == [
        "changed: [red] Create",
        "changed: [red] Create all => (item=one)",
        "changed: [red] Create all => (item=two)",
        "first line",
        "second line",
        "third line",
        "  fourth line",
        "started: Install (some minutes)",
        "waiting: Wait",
        # The next play has nothing else to print, so its name is not printed.
        "a sentence",
    ]
    assert plays["RECAP"].count("changed=3") == 1


def test_a_play_without_a_line_is_not_printed_and_check_mode_is_marked(plays: dict[str, str]) -> None:
    assert list(plays) == ["[Create things]", "[Try] [CHECK MODE]", "[Fail]", "RECAP"]


def test_a_failure_is_its_sentence_and_at_most_five_lines_more(plays: dict[str, str]) -> None:
    assert plays["[Fail]"].splitlines() == [
        "fatal: [red]: a reason",
        "  in the task: Break (details with -v)",
    ]
    printed = ["PLAY [Fail]", *plays["[Fail]"].splitlines(), "PLAY RECAP", *plays["RECAP"].splitlines()]
    assert reason("\n".join(printed)) == "fatal: [red]: a reason"
    # A recap has a line for each host, and the other plays have a second one.
    assert len([line for line in printed if line and not line.startswith("blue ")]) - 1 <= 5


RECORDS = [{"instance": f"i-{number}", "tags": {"Name": "c-worker"}} for number in range(200)]
EACH = {"name": "Each", "ansible.builtin.fail": {"msg": "a reason"}, "loop": ["one"]}
FAILURES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    # amazon.aws returns hundreds of lines without a message when `until` gives up.
    "no message": (
        [
            {
                "name": "Wait",
                "ansible.builtin.set_fact": {"records": RECORDS},
                "failed_when": True,
            }
        ],
        # ansible-core 2.21 has a sentence of its own for it.
        [
            r"fatal: \[red\]: (It failed without a message|A 'failed_when' expression evaluated to 'True')\.",
            r"  in the task: Wait .*",
        ],
    ),
    "a loop": (
        [{"name": "Each", "ansible.builtin.fail": {"msg": "a reason"}, "loop": [RECORDS, ["two"]]}],
        [
            r"failed: \[red\]: \(item=\[\{'instance': .{1,100}\) a reason",
            r"failed: \[red\]: \(item=\['two'\]\) a reason",
            r"  in the task: Each .*",
        ],
    ),
    "a command": (
        [{"name": "Run", "ansible.builtin.command": {"argv": ["sh", "-c", "seq 300 >&2; exit 3"]}}],
        [
            r"fatal: \[red\]: .*non-zero return code.*",
            *(str(number) for number in range(297, 301)),
            r"  in the task: Run .*",
        ],
    ),
    "a template": (
        [{"name": "Evaluate", "ansible.builtin.set_fact": {"x": "{{ {}['nothing'] + 1 }}"}}],
        [r"fatal: \[red\]: .*no attribute 'nothing'.*", r"  in the task: Evaluate .*"],
    ),
    "a long message": (
        [{"name": "Check", "ansible.builtin.fail": {"msg": "\n".join(["It failed:", *map(str, range(60))])}}],
        [r"fatal: \[red\]: It failed:", "56", "57", "58", "59", r"  in the task: Check \(details with -v\)"],
    ),
    "problems": (
        [{"name": "Check", "ansible.builtin.fail": {"msg": "\n".join(["9 settings are wrong:", *["- one"] * 9])}}],
        [r"fatal: \[red\]: 9 settings are wrong:", *["- one"] * 9, r"  in the task: Check .*"],
    ),
    "the same on all hosts": (
        [
            {"name": "Check", "ansible.builtin.fail": {"msg": "{{ inventory_hostname }}: a reason\na\nb\nc"}},
        ],
        [r"fatal: \[(red|blue)\]: a reason", "a", "b", "c", r"  in the task: Check on (red, blue|blue, red) \(.*"],
    ),
    "others on other hosts": (
        [{"name": "Check", "ansible.builtin.fail": {"msg": "of {{ inventory_hostname }}\nmore"}}],
        [
            r"fatal: \[(red|blue)\]: of \1",
            "more",
            r"fatal: \[(red|blue)\]: of \1",
            r"  in the task: Check on (red, blue|blue, red) \(.*",
        ],
    ),
    "rescued": (
        [
            {
                "name": "Try",
                "block": [{"name": "Wait", "ansible.builtin.fail": {"msg": "details"}}],
                "rescue": [{"name": "Refuse", "ansible.builtin.fail": {"msg": "They are in use:\n- worker2"}}],
            }
        ],
        [r"fatal: \[red\]: They are in use:", "- worker2", r"  in the task: Refuse .*"],
    ),
    "ignored": (
        [
            {"name": "Try", "ansible.builtin.fail": {"msg": "no matter"}, "ignore_errors": True},
            {"name": "End", "ansible.builtin.fail": {"msg": "a reason"}},
        ],
        [r"fatal: \[red\]: ignored: no matter", r"fatal: \[red\]: a reason", r"  in the task: End .*"],
    ),
    "ignored in a loop": (
        [
            {**EACH, "ignore_errors": "{{ 1 > 0 }}"},
            {**EACH, "ignore_errors": "{{ 1 < 0 }}"},
        ],
        [
            r"failed: \[red\]: \(item=one\) ignored: a reason",
            r"failed: \[red\]: \(item=one\) a reason",
            r"  in the task: Each .*",
        ],
    ),
    "unreachable and ignored": (
        [
            {
                "name": "Reach",
                "ansible.builtin.raw": "true",
                "vars": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
                "ignore_unreachable": True,
            },
            {"name": "End", "ansible.builtin.fail": {"msg": "a reason"}},
        ],
        [
            r"fatal: \[red\]: ignored: UNREACHABLE: .*Connection refused.*",
            r"fatal: \[red\]: a reason",
            r"  in the task: End .*",
        ],
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_no_failure_prints_what_only_a_developer_needs(tmp_path: Path, case: str) -> None:
    tasks, patterns = FAILURES[case]
    hosts = "red:blue" if "hosts" in case else "red"
    (tmp_path / "failing.yml").write_text(json.dumps([{"name": "Fail", "hosts": hosts, "tasks": tasks}]))
    output = play(tmp_path, playbook="failing.yml")
    lines = output.partition("PLAY [Fail]\n")[2].partition("\nPLAY RECAP")[0].rstrip("\n").splitlines()
    assert len(lines) == len(patterns), output[:2000]
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), (pattern, line[:2000])


VALUE = {"name": "c"}
DEBUG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a variable": ({"var": "value"}, ["ok: [red] => ", "    value:", "        name: c"]),
    "a list": ({"msg": ["a", 2]}, ["ok: [red] => ", "    msg:", "    - a", "    - 2"]),
    "an empty list": ({"msg": []}, ["ok: [red] => ", "    msg: []"]),
    "a record": ({"msg": "{{ value }}"}, ["ok: [red] => ", "    msg:", "        name: c"]),
}


@pytest.mark.parametrize("case", DEBUG)
def test_values_that_are_no_text_are_printed_as_ansible_prints_them(tmp_path: Path, case: str) -> None:
    arguments, lines = DEBUG[case]
    assert printed_before_the_end(tmp_path, {"ansible.builtin.debug": arguments, "vars": {"value": VALUE}}) == lines


def test_the_items_of_a_loop_are_printed_and_not_that_all_are_completed(tmp_path: Path) -> None:
    texts = {"ansible.builtin.debug": {"msg": "a {{ item }}"}, "loop": ["cat", "dog"]}
    values = {"ansible.builtin.debug": {"var": "item"}, "loop": [1, 2]}
    assert printed_before_the_end(tmp_path, texts, values) == [
        *("a cat", "a dog"),
        *("ok: [red] => (item=1) => ", "    item: 1", "ok: [red] => (item=2) => ", "    item: 2"),
    ]


def test_a_title_is_cut_only_where_it_names_the_role_or_the_file(tmp_path: Path) -> None:
    role = tmp_path / "roles/stages/tasks"
    role.mkdir(parents=True)
    (role / "main.yml").write_text(json.dumps([{"name": "In : the | role", **CHANGED}]))
    (tmp_path / "more").mkdir()
    (tmp_path / "more/files.yml").write_text(json.dumps([{"name": "more | files | Do | it", **CHANGED}]))
    names = ({"name": name, **CHANGED} for name in ("Do | a | b", "Step : do"))
    included = {"ansible.builtin.include_tasks": "more/files.yml"}
    with_role = {"ansible.builtin.include_role": {"name": "stages"}}
    assert printed_before_the_end(tmp_path, *names, included, with_role) == [
        "PLAY [Speak]",
        "changed: [red] Do | a | b",
        "changed: [red] Step : do",
        "changed: [red] Do | it",
        "changed: [red] In : the | role",
    ]


def printed_before_the_end(folder: Path, *tasks: dict[str, Any]) -> list[str]:
    """Return what these tasks print before a last one fails."""
    play_ = {"name": "Speak", "hosts": "red", "tasks": [*tasks, {"ansible.builtin.fail": {"msg": "The end."}}]}
    (folder / "speaking.yml").write_text(json.dumps([play_]))
    return play(folder, playbook="speaking.yml").partition("fatal: [red]: The end.")[0].splitlines()


def test_v_prints_all_of_a_failure(tmp_path: Path) -> None:
    (tmp_path / "failing.yml").write_text(
        json.dumps([{"name": "Fail", "hosts": "red", "tasks": FAILURES["a command"][0]}])
    )
    assert len(play(tmp_path, "-v", playbook="failing.yml").splitlines()) > 300


def test_v_prints_each_task(tmp_path: Path) -> None:
    output = play(tmp_path, "-v")
    for line in ("PLAY [Create things] ***", "TASK [Look] ***", "ok: [blue]", "included: ", "PLAY [Reach no host] ***"):
        assert line in output, (line, output)
