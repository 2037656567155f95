"""How Sphinx renders the documentation site. tools/site/build.py makes the tree of pages that it reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes

project = "deeplearning.aws"
author = "The deeplearning.aws contributors"
extensions = ["myst_parser", "sphinx_antsibull_ext", "sphinx_copybutton"]
root_doc = "docs/index"
html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_show_copyright = False
pygments_style = "ansible"
# A block without a language is a command or output.
highlight_language = "text"
# Each broken link is a warning, and each warning fails the build.
nitpicky = True
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

ANSIBLE = "https://docs.ansible.com/ansible/latest/"
ANSIBLE_PAGES = {
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "callback_plugins": "plugins/callback.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}
"""The labels of Ansible's own manual that antsibull-docs uses. Looking them up in its inventory needs the network."""


def ansible_page(label: str) -> str:
    """Return the address of what a label of Ansible's documentation names, or nothing."""
    if label in ANSIBLE_PAGES:
        return ANSIBLE + ANSIBLE_PAGES[label]
    if label.startswith("ANSIBLE_"):
        return f"{ANSIBLE}{ANSIBLE_PAGES['ansible_configuration_settings']}#envvar-{label}"
    prefix, _, rest = label.partition(".")
    if prefix != "ansible_collections" or rest.startswith("deeplearning."):
        return ""
    return f"{ANSIBLE}collections/{rest.replace('.', '/', 2)}.html"


def link_to_ansible(_app: Any, _env: Any, node: Any, content: Any) -> Any:
    address = ansible_page(node["reftarget"])
    return nodes.reference("", "", content, refuri=address, internal=False) if address else None


CONTENTS = re.compile(r"^\.\. contents::.*\n(?: +:.*\n)*", re.MULTILINE)


def without_contents(_app: Any, _page: str, source: list[str]) -> None:
    """Remove the lists of contents that antsibull-docs and antsibull-changelog make: the theme has its own."""
    source[0] = CONTENTS.sub("", source[0])


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", without_contents)
    app.connect("missing-reference", link_to_ansible)
    return {"parallel_read_safe": True}
