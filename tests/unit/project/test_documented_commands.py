"""The pages' commands: playbooks and options exist, and each block names the test that runs it, or why none does."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.playbook_input import TIMING
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import options_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import TABLE

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"ansible-playbook (?:deeplearning\.aws\.(\w+)|([\w/]+)\.yml)([^`|\n]*)")
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```\w*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
ENTERED = re.compile(
    r"^\s*(?:[$#] )?(?:sudo )?(?:ansible\S*|make|molecule|localcloud|ssh(?:-add)?|scp|aws|\S*pytest|eval) ",
    re.MULTILINE,
)
"""A line that a person enters, in contrast to output."""
NOT_RUN = re.compile(r"needs AWS|needs Windows|not run: .+")
NAME = re.compile(r"-e '?\"?(?:\{\"?)?(\w+)\"?[=:]")


def commands(page: Path) -> list[tuple[str, str, str]]:
    """Return each command as the playbook's path, its name, and what follows it."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [
        (f"playbooks/{collection}.yml" if collection else f"{path}.yml", collection or Path(path).name, rest)
        for collection, path, rest in COMMAND.findall(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_name_what_exists(page: Path) -> None:
    problems = []
    for path, playbook, rest in commands(page):
        if not (ROOT / path).is_file():
            problems.append(f"{path} does not exist")
        known = {*options_of(playbook), *TABLE, *TIMING}
        problems += [f"{path} does not have {name}" for name in NAME.findall(rest) if name not in known]
    assert not problems, problems


def test_the_files_that_pages_name_in_the_installed_collection_are_part_of_it() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    paths = {path.strip("/.") for path in re.findall(r"/ansible_collections/deeplearning/aws([\w./-]*)", text)}
    assert "meta/operator-requirements.txt" in paths
    # The commands of docs/iam.md are entered in the collection's folder.
    paths |= {str(path.relative_to(ROOT)) for path in (ROOT / "docs/iam").glob("*.json")}
    ignored = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["build_ignore"]
    missing = {path for path in paths if any(fnmatch(path, pattern) for pattern in ignored)}
    assert not missing and all((ROOT / path).exists() for path in paths), paths


def problems_of_mark(mark: str | None, text: str) -> list[str]:
    """Return what is wrong with the comment above a block of commands.

    A test that the comment names must exist, and its file must contain the names of the block's playbooks and of their
    options. Kits set the cluster's settings, so these are not searched for.
    """
    if mark and NOT_RUN.fullmatch(mark):
        return []
    if not mark or not mark.startswith("run by "):
        return [f"{mark!r} names neither a test nor a reason"]
    sources = ""
    for test in mark.removeprefix("run by ").split(", "):
        path, _, function = test.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        if not source or (function and f"\ndef {function}(" not in source):
            return [f"{test} does not exist"]
        sources += source
    # A test that reads its commands from the page does not contain their names.
    if "docs/start.md" in sources:
        return []
    names = {
        name
        for collection, path, rest in COMMAND.findall(text.replace("\\\n", " "))
        for name in (collection or Path(path).name, *NAME.findall(rest))
    }
    return [f"{mark}: no test contains {name}" for name in names - {*TABLE} if not re.search(rf"\b{name}\b", sources)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_block_of_commands_names_a_test_or_why_none_runs_it(page: Path) -> None:
    blocks = [block for block in BLOCK.finditer(page.read_text(encoding="utf-8")) if ENTERED.search(block["text"])]
    problems = {block["text"][:60]: problems_of_mark(block["mark"], block["text"]) for block in blocks}
    assert not any(problems.values()), {text: problem for text, problem in problems.items() if problem}


@pytest.mark.parametrize(
    "mark",
    [None, "tested", "run by tests/no.py", "run by tests/run.py::test_no", "run by tests/unit/project/test_circles.py"],
)
def test_a_block_without_a_test_is_a_problem(mark: str | None) -> None:
    assert problems_of_mark(mark, "ansible-playbook destroy.yml")


@pytest.mark.parametrize(("command", "problem"), [("status.yml -e watch=true", False), ("status.yml -e hours=4", True)])
def test_a_test_contains_the_options_of_the_block(command: str, problem: bool) -> None:
    assert bool(problems_of_mark("run by tests/account/test_status.py", f"ansible-playbook {command}")) is problem


def test_commands_can_be_pasted() -> None:
    """Behind a prompt a command fails, and `# ` makes it a comment. Output has a block of its own."""
    words = ["git", "ls-files", "-z", "*.md"]
    names = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]
    assert {"README.md", "localcloud/README.md", "roles/iam/README.md"} <= set(names)
    prompts = {
        name: block["text"]
        for name in names
        for block in BLOCK.finditer((ROOT / name).read_text(encoding="utf-8"))
        # At the beginning of a line in YAML, `# ` is a comment.
        if re.search(r"^\s*\$ \S", block["text"], re.MULTILINE)
        or (ENTERED.search(block["text"]) and re.search(r"^\s*# \S", block["text"], re.MULTILINE))
    }
    assert not prompts, prompts


def test_commands_are_recognized() -> None:
    """A pattern that no longer matches must not pass for pages without mistakes."""
    every = [command for page in PAGES for command in commands(page)]
    assert {"site", "train", "follow", "stop", "stage", "tensorboard", "evaluate"} <= {name for _, name, _ in every}
    assert {"run_id", "framework", "destroy"} <= {name for _, _, rest in every for name in NAME.findall(rest)}
    blocks = [block["text"] for page in PAGES for block in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    assert len([text for text in blocks if ENTERED.search(text)]) > 30
