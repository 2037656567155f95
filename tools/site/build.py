"""Build the documentation site into build/site/html: make docs

The pages are the Markdown files of this checkout, where they are. Those of modules, plugins and roles are made by
antsibull-docs from their own documentation and argument specs. A warning fails the build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build/site"
TOOLS = Path(sys.executable).parent
FRONT = '<!DOCTYPE html>\n<meta charset="utf-8">\n<meta http-equiv="refresh" content="0; url=docs/index.html">\n'


def run(*words: str | Path) -> None:
    path = f"{TOOLS}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"), "NO_COLOR": "1"}
    subprocess.run(words, cwd=ROOT, env=environment, check=True)


def tracked_files() -> list[Path]:
    """Return the files that are committed or could be. Pages link to some that are no pages."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [Path(name) for name in names if name and (ROOT / name).is_file()]


def copy_tree(source: Path) -> None:
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)


def build() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    source, html = SITE / "source", SITE / "html"
    copy_tree(source)
    reference = source / "docs/reference"
    reference.mkdir()
    options = ("--use-current", "--squash-hierarchy", "--fail-on-error", "--dest-dir", reference)
    run(TOOLS / "antsibull-docs", "collection", *options, "deeplearning.aws")
    strict = ("--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto")
    run(TOOLS / "python", "-m", "sphinx", *strict, "-c", ROOT / "tools/site", "-d", SITE / "doctrees", source, html)
    (html / "index.html").write_text(FRONT, encoding="utf-8")


def main() -> int:
    try:
        build()
    except subprocess.CalledProcessError as error:
        # The tool has printed what is wrong.
        print(f"{Path(error.cmd[0]).name} ended with {error.returncode}: the site was not built", file=sys.stderr)
        return 1
    print(f"{(SITE / 'html/index.html').relative_to(ROOT)} is the front page of the site")
    return 0


if __name__ == "__main__":
    sys.exit(main())
