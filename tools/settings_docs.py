"""Write what is generated from the tables of options: docs/settings.md, docs/playbooks.md and
inventory/group_vars/all.yml.

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
PLAYBOOKS_INTRODUCTION = (
    INTRODUCTION[0],
    "Each takes the cluster's [settings](settings.md) too, as `-e`. Misspelt names are refused, and values that the "
    "command line breaks: it splits at spaces. So write lists and maps in JSON, `-e '{\"sweep\": [1, 2]}'`, or in a "
    "file, `-e @run.yml`. Other unknown names have no effect, and a warning says so. In a checkout the daily ones have "
    "a short name as well, such as `train.yml`.",
    "Ansible leaves out plays and tasks because of `--limit`, `--tags`, `--skip-tags` and `--start-at-task`, and still "
    "returns 0. So a playbook refuses them if they would leave out a part of it, wherever they come from: the command "
    "line, `ansible.cfg` or the environment. `configure` alone has a meaning for one: `--limit deeplearning-worker2` "
    "configures that machine only. A `--limit` that selects everything, and tags that no task here has, are accepted. "
    "The inventory plugin checks this. With an inventory of another plugin alone (`-i host,`) a playbook that did "
    "nothing says so and fails, if `ansible.cfg` enables the callback `deeplearning.aws.short`. Without that "
    "callback too, Ansible returns 0.",
)


def sections() -> Any:
    from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import settings

    return settings.SECTIONS


def form(option: Any) -> str:
    """Return an option's values, default and example."""
    parts = [f"{option.form.kind}: {option.form.range}" if option.form.range else option.form.kind]
    if not option.may_be_empty:
        parts.append(f"default `{json.dumps(option.default).strip(chr(34))}`")
    return "; ".join([*parts, f"example `{option.argument()}`"])


def settings_page() -> str:
    lines = ["# Settings"]
    for paragraph in INTRODUCTION:
        lines += ["", *textwrap.wrap(paragraph, 118)]
    for title, text, rows in sections():
        lines += ["", f"## {title}"]
        lines += ["", text] if text else []
        for setting in rows:
            lines += ["", f"### {setting.name}", "", setting.help, "", form(setting)]
    return "\n".join(lines) + "\n"


def playbooks_page() -> str:
    from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import run_options

    lines = ["# Playbooks"]
    for paragraph in PLAYBOOKS_INTRODUCTION:
        lines += ["", *textwrap.wrap(paragraph, 118)]
    for name, text in run_options.PLAYBOOKS.items():
        lines += ["", f"## {name}", "", f"`ansible-playbook deeplearning.aws.{name}`", "", text]
        options = run_options.options_of(name).values()
        lines += ["", *(f"* `{option.name}`: {option.help} ({form(option)})" for option in options)] if options else []
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
            values = f" ({setting.form.range})" if setting.form.range else ""
            lines += ["", *(f"# {line}" for line in textwrap.wrap(plain + values, 116))]
            value = "" if setting.default is None else json.dumps(setting.default)
            if setting.name == "cluster_ssh_allowed_cidrs":
                value = json.dumps(setting.example)
            lines.append(f"# {setting.name}: {value}".rstrip())
    return "\n".join(lines) + "\n"


FILES = {
    "docs/settings.md": settings_page,
    "docs/playbooks.md": playbooks_page,
    "inventory/group_vars/all.yml": group_vars,
}

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "collections"))
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader([str(ROOT / "collections")])
    for name, make in FILES.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(make(), encoding="utf-8")
        print(name)
