"""A project of one's own: the built collection is installed, and an empty folder gets a project's files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.account.kit import ROOT, Account

PROGRAMS = Path(sys.executable).parent
FILES = [
    ".gitignore",
    "ansible.cfg",
    "inventory/aws.deeplearning.yml",
    "inventory/group_vars/all.yml",
    "requirements.txt",
]
OWN_PLAYBOOK = """\
- name: Say which stage it is
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Say it
      ansible.builtin.debug:
        msg: "This is {{ stage }}."

- name: Look at the cluster
  ansible.builtin.import_playbook: deeplearning.aws.plan
"""


class Project:
    """A folder, and a user whose home has the collection and nothing else."""

    def __init__(self, account: Account, folder: Path) -> None:
        self.folder, self._home = folder / "team", folder / "home"
        self.folder.mkdir()
        names = ("ANSIBLE_CONFIG", "ANSIBLE_STDOUT_CALLBACK")
        self._environment = {name: value for name, value in account.environment.items() if name not in names}
        self._environment |= {"HOME": str(self._home), "PATH": f"{PROGRAMS}:{self._environment['PATH']}"}
        self._environment |= {"USER": "jürgen", "LOGNAME": "jürgen"}

    def run(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            words, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def play(self, playbook: str, **options: str) -> tuple[int, str]:
        return self.run("ansible-playbook", playbook, *(f"-e{name}={value}" for name, value in options.items()))

    def files(self) -> Mapping[str, str]:
        return {
            str(path.relative_to(self.folder)): path.read_text()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def project(account: Account, tmp_path: Path) -> Project:
    built = tmp_path / "built"
    command = [PROGRAMS / "ansible-galaxy", "collection", "build", "--output-path", built]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (tarball,) = built.iterdir()
    project = Project(account, tmp_path)
    code, output = project.run("ansible-galaxy", "collection", "install", "--no-deps", str(tarball))
    assert code == 0, output
    return project


def test_a_project_begins_in_an_empty_folder(account: Account, project: Project) -> None:
    """The output of ansible-playbook is as a user sees it: that of Ansible before, ours from the first file on."""
    code, output = project.play("deeplearning.aws.new_project", cluster_name="team", cluster_region="us-west-2")
    assert code == 0 and "\\n" not in output, output
    # Ansible's own callback prints a list of lines.
    next_command = "  remove    ansible-playbook deeplearning.aws.destroy -e destroy=team"
    assert next_command in [line.strip(" ,").strip('"') for line in output.splitlines()], output
    before = project.files()
    assert list(before) == FILES
    code, output = project.play("deeplearning.aws.plan")
    assert code and "cluster_ssh_allowed_cidrs is not given" in output and "TASK [" not in output, output
    code, output = project.run("ansible-playbook", "deeplearning.aws.destroy", "-edestroy=team", "--limit", "workers")
    assert code and "--limit workers leaves out localhost" in " ".join(output.split()), output

    settings = project.folder / "inventory/group_vars/all.yml"
    account.wants("team")
    own = {name: value for name, value in account.settings.items() if name != "cluster_name"}
    settings.write_text(settings.read_text() + "".join(f"{name}: {value!r}\n" for name, value in own.items()))
    (project.folder / "requirements.txt").unlink()
    code, output = project.play("deeplearning.aws.new_project")
    left = [name for name in FILES if name != "requirements.txt"]
    assert code == 0 and all(name in output for name in left), output
    assert "  remove    ansible-playbook deeplearning.aws.destroy -e destroy=team" in output.splitlines(), output
    assert project.files() == {**before, "inventory/group_vars/all.yml": settings.read_text()}

    (project.folder / "own.yml").write_text(OWN_PLAYBOOK)
    code, output = project.run("ansible-playbook", "own.yml", "-e", "stage=prod")
    assert code == 0 and "This is prod." in output and "Cluster team in us-west-2" in output, output
    assert "stage is no option of deeplearning.aws.plan and has no effect here" in output, output
    assert not account.client("ec2", "us-west-2").describe_vpcs(
        Filters=[{"Name": "tag-key", "Values": ["deeplearning:cluster"]}]
    )["Vpcs"]
