"""Check what is released, with the tools that release it: python -m tests.lint.packaging

The tools have an environment of their own, made by `make packaging`, because their versions conflict with ours.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import ansible_collections
import yaml

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(sys.prefix)
TOOLS = VENV.with_name(f"{VENV.name}-packaging") / "bin"

EXPECTED = "ERROR: The import failed for the following reason: Invalid collection metadata. 'repository' is required"
"""Only the customer knows the address of the repository. The importer stops here, so a copy with an address follows."""
REPOSITORY = "https://git.example.com/deeplearning.aws"
CHANGELOG = "CHANGELOG.rst"
NEEDED = ("meta/ee-requirements.txt", "meta/ee-bindep.txt")
"""What the playbooks need on the operator's machine."""
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)")
MADE = "docs/reference"
"""The pages of modules, plugins and roles, which are made for the site alone."""


def built(folder: Path) -> Path:
    """Return the tarball of this checkout."""
    words: list[str | Path] = [VENV / "bin/ansible-galaxy", "collection", "build", "--output-path", folder]
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.tar.gz"))


def with_repository(tarball: Path, folder: Path) -> Path:
    """Return a copy of the tarball whose metadata names a repository."""
    copy = folder / tarball.name
    with tarfile.open(tarball) as source, tarfile.open(copy, "w:gz") as target:
        for member in source:
            # Only a file has content: extractfile() would follow a link.
            file = source.extractfile(member) if member.isreg() else None
            content = file.read() if file else b""
            if member.name == "MANIFEST.json":
                manifest = json.loads(content)
                manifest["collection_info"]["repository"] = REPOSITORY
                content = json.dumps(manifest).encode()
            member.size = len(content)
            target.addfile(member, io.BytesIO(content))
    return copy


def unpacked(tarball: Path, folder: Path) -> Path:
    """Return the collection's folder, where ansible-doc finds it."""
    collection = folder / "ansible_collections/deeplearning/aws"
    collection.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", tarball, "-C", collection], check=True)
    return collection


def run(words: Sequence[str | Path], folder: Path) -> tuple[int, list[str]]:
    """Return the exit code and the lines of a tool that sees the collections that we use."""
    # On a busy machine each takes minutes, and what prints nothing for long is taken for one that hangs.
    print(f"$ {shlex.join(map(str, words))}", flush=True)
    path = folder / "path"
    path.mkdir(exist_ok=True)
    link = path / "ansible_collections"
    if not link.is_symlink():
        link.symlink_to(next(place for place in ansible_collections.__path__ if Path(place, "amazon").is_dir()))
    environment = os.environ | {
        "PATH": f"{TOOLS}:{os.environ['PATH']}",
        "PYTHONPATH": str(path),
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "NO_COLOR": "1",
        # It ends ansible-lint after three minutes, which a busy machine needs. The layer runs ansible-lint itself.
        "GALAXY_IMPORTER_RUN_ANSIBLE_LINT": "false",
    }
    done = subprocess.run(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


def complaints(lines: Sequence[str]) -> list[str]:
    """Return what galaxy-importer finds wrong. It reports progress in lines without a level."""
    return [line for line in lines if line.startswith(("WARNING: ", "ERROR: ", "CRITICAL: "))]


def problems_for_galaxy(tarball: Path, folder: Path) -> list[str]:
    """Return what the importer finds wrong, and its expected complaint if it is missing."""
    importer: list[str | Path] = [TOOLS / "python", "-m", "galaxy_importer.main"]
    code, lines = run([*importer, tarball], folder)
    if code == 0 or complaints(lines) != [EXPECTED]:
        return ["galaxy-importer should complain of the missing repository, and of nothing else:", *lines[-20:]]
    code, lines = run([*importer, with_repository(tarball, folder)], folder)
    return complaints(lines) or ([f"galaxy-importer ended with {code}:", *lines[-20:]] if code else [])


def problems_in_documentation(collection: Path, folder: Path) -> list[str]:
    """Return what antsibull-docs finds wrong in the documentation of plugins and roles."""
    code, lines = run([TOOLS / "antsibull-docs", "lint-collection-docs", "--plugin-docs", collection], folder)
    return lines or ([f"antsibull-docs ended with {code}"] if code else [])


def problems_in_changelog(folder: Path) -> list[str]:
    """Return what antsibull-changelog finds wrong, a version without an entry, and a file that is out of date."""
    shutil.copytree(ROOT / "changelogs", folder / "changelogs")
    shutil.copy(ROOT / "galaxy.yml", folder)
    problems = []
    for word in ("lint", "generate"):
        code, lines = run([TOOLS / "antsibull-changelog", word], folder)
        problems += lines or ([f"antsibull-changelog {word} ended with {code}"] if code else [])
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    if version not in yaml.safe_load((ROOT / "changelogs/changelog.yaml").read_text())["releases"]:
        problems.append(f"changelogs/changelog.yaml has no release {version}: run antsibull-changelog release")
    if not problems and (folder / CHANGELOG).read_text() != (ROOT / CHANGELOG).read_text():
        problems.append(f"{CHANGELOG} differs from changelogs/changelog.yaml: run antsibull-changelog generate")
    return problems


def problems_in_execution_environment(tarball: Path, folder: Path) -> list[str]:
    """Return why no image can be described, and what the collection needs but the image would lack."""
    (folder / "build").mkdir()
    shutil.copy(tarball, folder / "build")
    shutil.copy(ROOT / "execution-environment.yml", folder)
    code, lines = run([TOOLS / "ansible-builder", "create", "--context", "context"], folder)
    if code:
        return [f"ansible-builder create ended with {code}:", *lines[-20:]]
    code, lines = run([TOOLS / "ansible-builder", "introspect", folder], folder)
    bindep = {line.split("#")[0].strip(" -'") for line in lines}
    needed = [line for name in NEEDED for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    missing = [line for line in needed if line not in bindep]
    return [f"ansible-builder introspect does not find {line}" for line in missing]


def problems_in_links(collection: Path) -> list[str]:
    """Return the relative links of pages that lead to nothing in the built collection."""
    problems = []
    for page in sorted(collection.rglob("*.md")):
        for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
            path = (page.parent / target).resolve()
            if not path.exists() and not path.is_relative_to(collection / MADE):
                problems.append(f"{page.relative_to(collection)} links to {target}, which is not in the collection")
    return problems


def main() -> int:
    subprocess.run(["make", "-s", "-C", ROOT, "packaging", f"VENV={VENV.relative_to(ROOT)}"], check=True)
    with tempfile.TemporaryDirectory() as scratch:
        built_in, copied_to = Path(scratch, "built"), Path(scratch, "copy")
        built_in.mkdir()
        copied_to.mkdir()
        tarball = built(built_in)
        collection = unpacked(tarball, copied_to)
        problems = [
            *problems_for_galaxy(tarball, copied_to),
            *problems_in_links(collection),
            *problems_in_documentation(collection, copied_to),
            *problems_in_changelog(copied_to),
            *problems_in_execution_environment(tarball, copied_to),
        ]
    if problems:
        print("\n".join(problems))
        return 1
    print("galaxy-importer complains only of the missing repository; the other tools find nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
