"""The pages' commands: each playbook exists, and it has each option and setting that is given to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.playbook_input import TIMING
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import options_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import TABLE

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"ansible-playbook (?:deeplearning\.aws\.(\w+)|([\w/]+)\.yml)([^`|\n]*)")
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


def test_commands_are_recognized() -> None:
    """A pattern that no longer matches must not pass for pages without mistakes."""
    every = [command for page in PAGES for command in commands(page)]
    assert {"site", "train", "follow", "stop", "stage", "tensorboard", "evaluate"} <= {name for _, name, _ in every}
    assert {"run_id", "framework", "destroy"} <= {name for _, _, rest in every for name in NAME.findall(rest)}
