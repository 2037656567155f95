"""Deprecation warnings: those that our own code or content causes fail tests, those of others do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deprecations import ROOT, SHOW_DEPRECATIONS, our_deprecations

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
      when: "{{ true }}"
"""
OTHERS = (
    "[DEPRECATION WARNING]: In a release after 2026-05-01 iam_role.x will no longer be returned. This feature will be "
    "removed from collection 'amazon.aws' in a release after 2026-05-01."
)


@pytest.mark.parametrize(
    "output",
    [
        OTHERS,
        OTHERS.replace(" feature will", "\nfeature\nwill"),
        "[DEPRECATION WARNING]: Old. Removed from ansible-core version 2.23.\n"
        "Origin: /x/site-packages/ansible_collections/amazon/aws/roles/y.yml:1:2\n",
        "/x/.venv/lib/python3.13/site-packages/moto/a.py:3: DeprecationWarning: old",
        f"{ROOT}/.venv/lib/python3.13/site-packages/moto/a.py:3: DeprecationWarning: old",
        "[WARNING]: nothing is deprecated",
        "[DEPRECATION WARNING]: Passing `warnings` to `exit_json` or `fail_json` is deprecated. Use warn.",
    ],
)
def test_other_peoples_warnings_are_not_ours(output: str) -> None:
    assert our_deprecations(output) == []


@pytest.mark.parametrize(
    "output",
    [
        "[DEPRECATION WARNING]: Conditionals should not be templates. Removed from ansible-core version 2.23.",
        f"{OTHERS}\n[DEPRECATION WARNING]: Old import. Removed from ansible-core version 2.23.\n{OTHERS}",
        OTHERS.replace("amazon.aws", "deeplearning.aws"),
        f"\x1b[0;35m{OTHERS.replace('amazon.aws', 'deeplearning.aws')}\x1b[0m",
        f"{ROOT}/plugins/module_utils/aws/client.py:3: DeprecationWarning: old",
        f"  {ROOT}/tests/run.py:3: PendingDeprecationWarning: old",
        "/tmp/x.zip/ansible_collections/deeplearning/aws/plugins/modules/a.py:3: DeprecationWarning: old",
    ],
)
def test_our_own_warnings_are_found_once(output: str) -> None:
    assert len(our_deprecations(f"ok\n{output}\nok\n{output}\n")) == 1


def test_no_module_of_ours_passes_warnings_as_a_result() -> None:
    modules = list((ROOT / "plugins/modules").glob("*.py"))
    assert modules and not [path for path in modules if re.search(r"\bwarnings\b", path.read_text(encoding="utf-8"))]


def test_a_playbook_with_an_old_construct_is_found(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(PLAY)
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "play.yml"],
        cwd=tmp_path,
        env=os.environ | SHOW_DEPRECATIONS,
        capture_output=True,
        text=True,
        check=False,
    )
    (warning,) = our_deprecations(done.stdout + done.stderr)
    assert "Conditionals should not be surrounded by templating delimiters" in warning


def test_an_old_call_in_our_code_fails_a_test(tmp_path: Path) -> None:
    """Whatever the warning is about: it must be raised where it is caused."""
    (tmp_path / "test_old.py").write_text(
        "import warnings\n"
        "from localcloud.testing import errors\n"
        "def test_ours(): exec(compile('import warnings; warnings.warn(\"old\", DeprecationWarning)', 'x', 'exec'),"
        " {'__name__': errors.__name__})\n"
        "def test_theirs(): exec(compile('import warnings; warnings.warn(\"old\", DeprecationWarning)', 'x', 'exec'),"
        " {'__name__': 'moto.core'})\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", "--rootdir", "."]
    done = subprocess.run([*words, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "FAILED" in done.stdout and "test_ours - DeprecationWarning: old" in done.stdout
