"""What the operator's side sends of a file with requirements, and which files it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.run_request import MOST_REQUIREMENTS
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import run_rules
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import requirements

LOCK = "einops==0.8.2 \\\n    --hash=sha256:54058201ac7087911181bfec4af6091bb59380360f069276601256a76af08193\n"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder


def test_the_lines_of_a_file_and_of_those_that_it_includes_are_sent(tmp_path: Path) -> None:
    write(
        tmp_path,
        requirements_txt="# ours\n\nscipy>=1.11  # a reason\n-r more/base.txt # as well\n-f https://example.org/x\n",
        more__base_txt="-rlast.txt\n--extra-index-url https://example.org/simple\n",
        more__last_txt="einops",
    )
    text = requirements.read(tmp_path / "requirements.txt")
    assert text == "scipy>=1.11\neinops\n--extra-index-url https://example.org/simple\n-f https://example.org/x\n"


def test_a_lock_with_checksums_stays_as_it_is(tmp_path: Path) -> None:
    text = requirements.read(write(tmp_path, requirements_txt=LOCK) / "requirements.txt")
    assert [line.strip() for line in text.splitlines()] == [line.strip() for line in LOCK.splitlines()]


def test_the_dependencies_of_a_project_are_its_requirements(tmp_path: Path) -> None:
    project = '[project]\nname = "x"\ndependencies = ["scipy>=1.11", "einops; python_version > \'3.8\'"]\n'
    text = requirements.read(write(tmp_path, pyproject_toml=project) / "pyproject.toml")
    assert text == "scipy>=1.11\neinops; python_version > '3.8'\n"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("pyproject.toml", '[project]\nname = "x"\n', "which has no list project.dependencies"),
        ("pyproject.toml", "[project\n", "which has no list project.dependencies"),
        ("uv.lock", "version = 1\n", "which pip cannot install: write it as requirements. Example: uv export"),
        ("environment.yml", "dependencies: []\n", "which pip cannot install"),
        ("requirements.txt", "# nothing\n\n", "which names no package"),
        ("requirements.txt", "x" * MOST_REQUIREMENTS, "which has more than 256 KiB"),
        ("requirements.txt", "-r requirements.txt", "is included again"),
        ("requirements.txt", "-r none.txt", "none.txt, which cannot be read"),
        ("requirements.txt", "-e .", "its line -e . names a file, which nodes do not have"),
        ("requirements.txt", "./wheels/x.whl", "names a file, which nodes do not have"),
        ("requirements.txt", "x @ file:///home/me/x", "names a file, which nodes do not have"),
        ("requirements.txt", "-c constraints.txt", "names a file, which nodes do not have"),
        ("requirements.txt", "git+ssh://git@example.org/x", "names a repository by ssh, for which nodes have no key"),
        ("requirements.txt", "--index-url https://${A}@e.org --extra-index-url https://a:secret@f.org", "has a login"),
        (
            "requirements.txt",
            "git+https://me:secret@example.org/x",
            "has a login, which would stand in",
        ),
    ],
)
def test_what_nodes_could_not_use_is_refused(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=problem) as refused:
        requirements.read(tmp_path / name)
    assert "secret" not in str(refused.value)


def test_a_login_may_come_from_the_environment(tmp_path: Path) -> None:
    line = "git+https://${USER}:${TOKEN}@example.org/x@v1\n--extra-index-url https://aws:${TOKEN}@example.org/y\n"
    assert requirements.read(write(tmp_path, requirements_txt=line) / "requirements.txt") == line


def test_a_repository_cannot_name_a_file_outside(tmp_path: Path) -> None:
    tree = write(tmp_path, tree__requirements_txt="-r ../own.txt", own_txt="x") / "tree"
    (tree / "link.txt").symlink_to(tmp_path / "own.txt")
    for name in ("requirements.txt", "link.txt", "../own.txt"):
        with pytest.raises(UserError, match="which is not in the repository"):
            requirements.read(tree / name, tree)


def test_where_the_file_is(tmp_path: Path) -> None:
    file = str(write(tmp_path, requirements_txt="einops") / "requirements.txt")
    assert requirements.locate(file, "/efs", in_repository=True) == {"requirements": "einops\n"}
    assert requirements.locate("deps.txt", "/efs", in_repository=True) == {"requirements_file": "deps.txt"}
    assert requirements.locate("/efs/deps.txt", "/efs", in_repository=False) == {"requirements": "/efs/deps.txt"}


def test_the_option_is_checked_before_anything_is_done(tmp_path: Path) -> None:
    variables = {"framework": "pytorch", "requirements": str(tmp_path / "none.txt")}
    (problem,) = run_rules.check("train", variables).problems
    assert problem.startswith(f"requirements is {tmp_path}/none.txt, which cannot be read: ")
    (tmp_path / "none.txt").write_text("einops")
    assert not run_rules.check("train", variables).problems
    (problem,) = run_rules.check("train", variables | {"python": "/efs/env/bin/python"}).problems
    assert problem.startswith("requirements and python are given together")
