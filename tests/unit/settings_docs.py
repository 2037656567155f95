"""Writes what is made from the table of settings: docs/settings.md, inventory/group_vars/all.yml.

.venv/bin/python tests/unit/settings_docs.py
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

INTRODUCTION = (
    "Made from the table in `plugins/plugin_utils/_settings.py` by `tests/unit/settings_docs.py`; a test holds "
    "the two together.",
    "*Which* cluster is in `inventory/aws.deeplearning.yml`, *what* it shall be in `inventory/group_vars/all.yml`. "
    "Both yield to extra vars: `-e cluster_worker_count=4`. Lists and maps are given in JSON and within quotes,"
    " or in a "
    "file: `-e @my-cluster.yml`. All are checked before anything is asked of AWS, and every one that is wrong is told "
    "at once.",
)


def sections() -> Any:
    from ansible_collections.deeplearning.aws.plugins.plugin_utils import _settings

    return _settings.SECTIONS


def default(setting: Any) -> str:
    return "" if setting.default in (None, "", [], {}) else f"`{json.dumps(setting.default).strip(chr(34))}`"


def example(setting: Any) -> str:
    from ansible_collections.deeplearning.aws.plugins.plugin_utils import _settings

    return f"`{_settings.as_option(setting)}`"


def markdown() -> str:
    lines = [
        "# Settings",
        "",
        *textwrap.wrap(INTRODUCTION[0], 118),
        "",
        *textwrap.wrap(INTRODUCTION[1], 118),
    ]
    for title, text, settings in sections():
        lines += ["", f"## {title}", ""]
        lines += [text, ""] if text else []
        lines += ["| setting | what it is | values | default | example |", "| --- | --- | --- | --- | --- |"]
        for setting in settings:
            values = f"{setting.kind}: {setting.range}" if setting.range else setting.kind
            row = (f"`{setting.full_name}`", setting.help, values, default(setting), example(setting))
            lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in row).replace("|  |", "| |") + " |")
    return "\n".join(lines) + "\n"


def group_vars() -> str:
    lines = [
        "# What the cluster shall be. Which cluster it is stands in ../aws.deeplearning.yml.",
        "#",
        "# Every setting is here with its default; docs/settings.md lists them with examples. Extra vars win over this",
        "# file: -e cluster_worker_count=4. After a change run site.yml again: it changes the cluster.",
        "---",
    ]
    for title, text, settings in sections():
        if all(setting.which for setting in settings):
            continue
        lines += ["", f"# --- {title} " + "-" * (113 - len(title))]
        lines += [f"# {line}" for line in textwrap.wrap(text.replace("`", ""), 116)]
        for setting in settings:
            plain = setting.help.replace("`", "").replace("**", "")
            values = f" ({setting.range})" if setting.range else ""
            lines += ["", *(f"# {line}" for line in textwrap.wrap(plain + values, 116))]
            value = "" if setting.default is None else json.dumps(setting.default)
            if setting.name == "ssh_location":
                lines.append(f"# {setting.full_name}: {json.dumps(setting.example)}")
            else:
                lines.append(f"{setting.full_name}: {value}".rstrip())
    return "\n".join(lines) + "\n"


FILES = {"docs/settings.md": markdown, "inventory/group_vars/all.yml": group_vars}

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "collections"))
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader([str(ROOT / "collections")])
    for name, make in FILES.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(make(), encoding="utf-8")
        print(name)
