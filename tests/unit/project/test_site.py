"""The documentation site: complete, without anything from elsewhere, and shown by a browser."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import TABLE

from tests.browser import page_text, screenshot

ROOT = Path(__file__).resolve().parents[3]
VENV = Path(sys.prefix)
SPHINX = VENV.with_name(f"{VENV.name}-packaging") / "bin/python"
LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="(?P<src>[^"]*)"|<link[^>]*\shref="(?P<href>[^"]*)"')
"""What a browser fetches by itself to show a page."""


@pytest.fixture(scope="module")
def site() -> Path:
    """Return the folder of the built site. The layer lint has built it, unless this runs alone."""
    subprocess.run(["make", "-s", "-C", ROOT, "docs", f"VENV={VENV.relative_to(ROOT)}"], check=True)
    return ROOT / "build/site/html"


@pytest.mark.program("chromium", "google-chrome")
def test_a_browser_shows_the_front_page_and_leads_on(site: Path, tmp_path: Path) -> None:
    assert "url=docs/index.html" in (site / "index.html").read_text()
    shown = page_text(f"file://{site}/docs/index.html")
    assert "<h1>deeplearning.aws<a" in shown and "Start here" in shown
    screenshot(f"file://{site}/docs/index.html", tmp_path / "site.png", 1200, 900)
    picture = (tmp_path / "site.png").read_bytes()
    assert struct.unpack(">II", picture[16:24]) == (1200, 900)
    # A page that shows nothing compresses to a few kilobytes.
    assert len(picture) > 20_000


def test_each_page_of_the_checkout_is_a_page_of_the_site(site: Path) -> None:
    words = ["git", "ls-files", "docs/*.md", "docs/decisions/*.md", "roles/*/README.md"]
    pages = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert len(pages) > 40
    assert [page for page in pages if not (site / page).with_suffix(".html").is_file()] == []


def test_modules_plugins_and_roles_are_described_from_their_specs(site: Path) -> None:
    reference = site / "docs/reference"
    names = [f"{path.stem}_module" for path in ROOT.glob("plugins/modules/*.py")]
    names += [f"{path.name}_role" for path in ROOT.glob("roles/*")]
    assert len(names) > 30
    assert [name for name in names if not (reference / f"{name}.html").is_file()] == []
    assert "iam_permissions_boundary" in (reference / "iam_role.html").read_text()
    # Ansible's own documentation is linked without asking it for its index.
    assert "https://docs.ansible.com/ansible/latest/" in (reference / "teardown_module.html").read_text()


def test_a_page_loads_nothing_from_elsewhere_and_the_theme_complains_of_none(site: Path) -> None:
    pages = [page.read_text() for page in site.rglob("*.html")]
    assert len(pages) > 100
    # The theme shows its complaints as red boxes in the page.
    assert not [page for page in pages if "in Furo-based documentation" in page]
    loaded = {match["src"] or match["href"] for page in pages for match in LOADED.finditer(page)}
    assert loaded
    assert [address for address in loaded if address.startswith(("http:", "https:", "//"))] == []


@pytest.mark.program("chromium", "google-chrome")
def test_commands_can_be_copied_and_output_has_no_colours(site: Path) -> None:
    assert 'class="copybtn' in page_text(f"file://{site}/docs/start.html")
    costs = (site / "docs/costs.html").read_text()
    assert 'class="highlight-text' in costs and 'class="highlight-default' not in costs


def test_each_setting_has_an_address(site: Path) -> None:
    page = (site / "docs/settings.html").read_text()
    assert [name for name in TABLE if f'id="{name}"' not in page] == []


@pytest.mark.program("chromium", "google-chrome")
def test_guides_are_found_before_decisions(site: Path) -> None:
    results = re.findall(r'<li[^>]*><a href="(docs/[^"?#]*)', page_text(f"file://{site}/search.html?q=checkpoint"))
    assert results and not results[0].startswith(("docs/decisions/", "docs/architecture", "docs/benchmarks"))


@pytest.mark.usefixtures("site")
def test_each_broken_link_is_named_and_fails_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "other.md").write_text("# Other\n")
    links = " ".join(f"[text]({target})" for target in ("other.md#other", "nowhere.md", "other.md#lost"))
    (docs / "index.md").write_text(f"# Title\n\n{links}\n\n```{{toctree}}\nother\n```\n")
    words = [SPHINX, "-m", "sphinx", "-q", "--fail-on-warning", "--keep-going", "-c", ROOT / "tools/site"]
    built = subprocess.run([*words, tmp_path, tmp_path / "html"], capture_output=True, text=True, check=False)
    assert built.returncode == 1
    warnings = [line for line in built.stderr.splitlines() if "[myst.xref_missing]" in line]
    assert len(warnings) == 2 and "nowhere.md" in warnings[0] and "lost" in warnings[1], built.stderr
