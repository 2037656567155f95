"""Write what is generated from the tables of options: docs/settings.md, inventory/group_vars/all.yml.

.venv/bin/python tools/settings_docs.py
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

INTRODUCTION = (
    "Generated from the tables in `plugins/plugin_utils/options` by `tools/settings_docs.py`.",
    "`inventory/aws.deeplearning.yml` says *which* cluster is meant, `inventory/group_vars/all.yml` *what* it is. "
    "Extra vars override both: `-e cluster_worker_count=4`. Lists and maps are given in JSON and within quotes, or in "
    "a file: `-e @my-cluster.yml`. All of them are validated before anything is written, and all problems are "
    "reported at once.",
    "For a cluster that exists, a setting that is not given means *as it is*: `site.yml` and `emr.yml` record what "
    "they are given in the cluster's bucket (`settings.json`), and the plan prints what changes. To go back to a "
    "default, give it. What would be taken away needs a consent: `-e remove_workers=3`, `-e remove_end=true`. Not "
    "recorded, as they are this machine's or remove something: which cluster it is, `cluster_public_key_file` (the key "
    "pair that was made of it stays), `cluster_private_key_file`, `cluster_bastion`, `cluster_summary_file`, "
    "`cluster_ssh_purge_rules` and `cluster_keep_efs`. Variables of roles are no settings and not recorded either: a "
    "`site.yml` without `framework_wheels` or `tensorpack_source` takes them from machines that configure themselves, "
    "so keep them in the `group_vars` that all operators of the cluster share.",
    "A cluster without that object (an earlier version made it, or the object was damaged and removed): the plan "
    "compares with types, image, volumes, key pair, network and ends as AWS shows them, and asks for the settings "
    "whose defaults differ. Of the others the defaults count.",
)


def sections() -> Any:
    from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import settings

    return settings.SECTIONS


def other_options() -> Any:
    """Return the options of the playbooks that docs/training.md does not cover, by playbook."""
    from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import run_options

    playbooks = [name for name in run_options.PLAYBOOKS if name not in run_options.RUN_PLAYBOOKS]
    return {name: list(options.values()) for name in playbooks if (options := run_options.options_of(name))}


def default(option: Any) -> str:
    return "" if option.may_be_empty else f"`{json.dumps(option.default).strip(chr(34))}`"


def table(title: str, options: Any) -> list[str]:
    lines = [f"| {title} | what it is | values | default | example |", "| --- | --- | --- | --- | --- |"]
    for option in options:
        values = f"{option.kind}: {option.range}" if option.range else option.kind
        row = (f"`{option.name}`", option.help, values, default(option), f"`{option.argument()}`")
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in row).replace("|  |", "| |") + " |")
    return lines


def markdown() -> str:
    lines = [
        "# Settings",
        "",
        *textwrap.wrap(INTRODUCTION[0], 118),
        "",
        *textwrap.wrap(INTRODUCTION[1], 118),
        "",
        *textwrap.wrap(INTRODUCTION[2], 118),
        "",
        *textwrap.wrap(INTRODUCTION[3], 118),
    ]
    for title, text, rows in sections():
        lines += ["", f"## {title}", ""]
        lines += [text, ""] if text else []
        lines += table("setting", rows)
    from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import name_of

    lines += ["", "## Options of single playbooks", "", "docs/training.md lists those of training runs."]
    for playbook, options in other_options().items():
        lines += ["", f"### {name_of(playbook)}", "", *table("option", options)]
    return "\n".join(lines) + "\n"


def group_vars() -> str:
    lines = [
        "# What the cluster is. ../aws.deeplearning.yml says which cluster is meant.",
        "#",
        "# Every setting is here with its default, as a comment: give what differs. docs/settings.md lists examples.",
        "# Extra vars override this file: -e cluster_worker_count=4. After a change, run site.yml again, which updates",
        "# the cluster. A setting that neither gives stays as it is.",
        "---",
    ]
    for title, text, rows in sections():
        if title == sections()[0][0]:
            continue
        lines += ["", f"# --- {title} " + "-" * (113 - len(title))]
        lines += [f"# {line}" for line in textwrap.wrap(text.replace("`", ""), 116)]
        for setting in rows:
            plain = setting.help.replace("`", "").replace("**", "")
            values = f" ({setting.range})" if setting.range else ""
            lines += ["", *(f"# {line}" for line in textwrap.wrap(plain + values, 116))]
            value = "" if setting.default is None else json.dumps(setting.default)
            if setting.name == "cluster_ssh_allowed_cidrs":
                value = json.dumps(setting.example)
            lines.append(f"# {setting.name}: {value}".rstrip())
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
