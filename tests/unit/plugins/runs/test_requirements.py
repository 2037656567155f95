"""What the operator's side sends of a file with requirements, and which files it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.run_request import MOST_REQUIREMENTS
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import run_rules
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import requirements

LOCK = "einops==0.8.2 \\\n    --hash=sha256:54058201ac7087911181bfec4af6091bb59380360f069276601256a76af08193\n"


def read(file: Path, code_folder: Path | None = None) -> str:
    return requirements.read_local(file, code_folder)


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
    text = read(tmp_path / "requirements.txt")
    assert text == "scipy>=1.11\neinops\n--extra-index-url https://example.org/simple\n-f https://example.org/x\n"


def test_a_lock_with_checksums_stays_as_it_is(tmp_path: Path) -> None:
    text = read(write(tmp_path, requirements_txt=LOCK) / "requirements.txt")
    assert [line.strip() for line in text.splitlines()] == [line.strip() for line in LOCK.splitlines()]


def test_the_dependencies_of_a_project_are_its_requirements(tmp_path: Path) -> None:
    project = '[project]\nname = "x"\ndependencies = ["scipy>=1.11", "einops; python_version > \'3.8\'"]\n'
    text = read(write(tmp_path, pyproject_toml=project) / "pyproject.toml")
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
        ("requirements.txt", "\nscipy\n-e .", "and line 3, -e ., names a file, which nodes do not have"),
        ("requirements.txt", "./wheels/x.whl", "names a file, which nodes do not have"),
        ("requirements.txt", "x @ file:///home/me/x", "names a file, which nodes do not have"),
        ("requirements.txt", "-c constraints.txt", "its line 1 names the file constraints.txt, which nodes"),
        ("requirements.txt", "-r none.txt", "none.txt, which cannot be read and is included by .*requirements.txt"),
        ("requirements.txt", "a\n-r 'b", "a quotation mark in its line 2 is not closed"),
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
        read(tmp_path / name)
    assert "secret" not in str(refused.value)


def test_a_login_may_come_from_the_environment(tmp_path: Path) -> None:
    line = "git+https://${USER}:${TOKEN}@example.org/x@v1\n--extra-index-url https://aws:${TOKEN}@example.org/y\n"
    assert read(write(tmp_path, requirements_txt=line) / "requirements.txt") == line


def test_a_repository_cannot_name_a_file_outside(tmp_path: Path) -> None:
    tree = write(tmp_path, tree__requirements_txt="-r ../own.txt", own_txt="x") / "tree"
    (tree / "link.txt").symlink_to(tmp_path / "own.txt")
    for name in ("requirements.txt", "link.txt", "../own.txt"):
        with pytest.raises(UserError, match="which is not in the repository"):
            requirements.read_in_repository(tree, name)


CREDENTIALS = "[default]\naws_secret_access_key = abc\n"
OUTSIDE = (
    "-r ../outside.txt",
    "-r../outside.txt",
    "-r  ../outside.txt  # a reason",
    "-r=../outside.txt",
    "--requirement ../outside.txt",
    "--requirement=../outside.txt",
    "--requireme ../outside.txt",
    "-r \\\n../outside.txt",
    "-\\\nr ../outside.txt",
    "--require\\\nment=../outside.txt",
    "-r '../outside.txt'",
    '-r "../outside.txt"',
    "-r ..\\/outside.txt",
    "-r {outside}",
    "-r link.txt",
    "-r folder/outside.txt",
    "-r loop.txt",
    "-c ../outside.txt",
    "-c{outside}",
    "--constraint=../outside.txt",
    "--con ../outside.txt",
    "-c link.txt",
)
NEVER = (
    "-r file://{outside}",
    "-r file:../outside.txt",
    "-r https://example.org/requirements.txt",
    "-c file://{outside}",
    "-r ${{HOME}}/outside.txt",
    "-r ${{OLDPWD}}outside.txt",
    "-r ../outside.txt\x00",
    "--pre -r ../outside.txt",
    "--pre '-r' ../outside.txt",
    "-r ../outside.txt --pre",
    "--index-url https://example.org -r ../outside.txt",
    "scipy -r ../outside.txt",
    "-r",
    "-r '../outside.txt",
    "-r config/credentials.txt",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that other people wrote, next to a file with a secret."""
    folder = write(tmp_path, project__base_txt="einops", outside_txt=CREDENTIALS) / "project"
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "config").mkdir()
    (folder / "config/credentials.txt").write_text(CREDENTIALS)
    return folder


@pytest.mark.parametrize("line", OUTSIDE)
def test_a_line_that_leads_out_of_the_project_is_refused_with_its_number(project: Path, line: str) -> None:
    file = project / "requirements.txt"
    file.write_text(f"scipy\n\n{line.format(outside=project.parent / 'outside.txt')}\nnumpy\n")
    with pytest.raises(UserError) as refused:
        read(file)
    assert f"requirements is {file}, and its line 3 includes " in str(refused.value)
    assert f"which is not in {project}: only files of the project" in str(refused.value)
    assert "aws_secret_access_key" not in str(refused.value)


@pytest.mark.parametrize("line", [*NEVER, *OUTSIDE])
def test_no_line_brings_a_file_from_outside_and_none_reaches_the_nodes_unread(project: Path, line: str) -> None:
    file = project / "requirements.txt"
    file.write_text(f"scipy\n{line.format(outside=project.parent / 'outside.txt')}\n")
    with pytest.raises(UserError, match="its line 2 ") as refused:
        read(file, project)
    assert "aws_secret_access_key" not in str(refused.value)


def test_a_file_that_is_itself_a_link_to_somewhere_else_is_refused(project: Path) -> None:
    with pytest.raises(UserError, match=f"which is not in {project}: its path or a link leads elsewhere"):
        read(project / "link.txt")


def test_the_folder_of_the_code_may_have_what_is_above_the_file(project: Path) -> None:
    (project / "requirements").mkdir()
    file = project / "requirements/train.txt"
    file.write_text(f"-r ../base.txt\n--requirement={project}/base.txt\n-rmore.txt")
    (project / "requirements/more.txt").symlink_to("../base.txt")
    assert read(file, project) == "einops\n" * 3
    for code_folder in (None, project / "config"):
        with pytest.raises(UserError, match=f"its line 1 includes ../base.txt, which is not in {project}/requirements"):
            read(file, code_folder)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a \\\nb\n", "a \\\nb\n"),
        ("a \\\n\nb\n", "a\nb\n"),
        ("a \\\n# note\nb\n", "a\nb\n"),
        ("a \\", "a\n"),
        ("a@https://e.org/a.whl#sha256=1 \\\n--no-deps", "a@https://e.org/a.whl#sha256=1 --no-deps\n"),
        ("\ufeffa\n", "a\n"),
        ("-c https://example.org/c.txt\n", "-c https://example.org/c.txt\n"),
        ("-i https://e.org/-r\n", "-i https://e.org/-r\n"),
    ],
)
def test_lines_are_joined_as_pip_joins_them(tmp_path: Path, text: str, sent: str) -> None:
    assert read(write(tmp_path, requirements_txt=text) / "requirements.txt") == sent


def test_where_the_file_is(tmp_path: Path) -> None:
    file = str(write(tmp_path, requirements_txt="einops") / "requirements.txt")
    assert requirements.locate(file, "/efs", in_repository=True) == {"requirements": "einops\n"}
    assert requirements.locate("deps.txt", "/efs", in_repository=True) == {"requirements_file": "deps.txt"}
    assert requirements.locate("/efs/deps.txt", "/efs", in_repository=False) == {"requirements": "/efs/deps.txt"}


def test_the_option_is_checked_with_the_folder_of_the_code(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "pkg").mkdir()
    (project / "pkg/train.py").write_text("")
    (project / "pkg/requirements.txt").write_text("-r ../base.txt")
    file = str(project / "pkg/requirements.txt")
    variables = {"framework": "pytorch", "requirements": file, "script": str(project / "pkg/train.py")}
    (problem,) = run_rules.check("train", variables).problems
    assert "its line 1 includes ../base.txt, which is not in " in problem
    assert not run_rules.check("train", {**variables, "sync": str(project)}).problems
    monkeypatch.chdir(project)
    assert not run_rules.check("train", {"framework": "pytorch", "requirements": file, "module": "pkg.train"}).problems


def test_the_option_is_checked_before_anything_is_done(tmp_path: Path) -> None:
    variables = {"framework": "pytorch", "requirements": str(tmp_path / "none.txt")}
    (problem,) = run_rules.check("train", variables).problems
    assert problem.startswith(f"requirements is {tmp_path}/none.txt, which cannot be read: ")
    (tmp_path / "none.txt").write_text("einops")
    assert not run_rules.check("train", variables).problems
    (problem,) = run_rules.check("train", variables | {"python": "/efs/env/bin/python"}).problems
    assert problem.startswith("requirements and python are given together")
