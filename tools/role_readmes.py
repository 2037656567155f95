"""Write each role's table of variables (README.md) and its description for Ansible Galaxy (meta/main.yml) from its
argument specs: tools/role_readmes.py [--check]

The text between the two marks is replaced. With --check nothing is written, and a file that differs is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- variables: made by tools/role_readmes.py -->", "<!-- end of variables -->"


def words(description: Any) -> str:
    return " ".join(description) if isinstance(description, list) else str(description)


def shown(value: Any) -> str:
    """Return a default as it is written in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    return '""' if value == "" else str(value)


def kind(option: dict[str, Any]) -> str:
    of = f" of {option['elements']}" if "elements" in option else ""
    return f"{option['type']}{of}"


def row(name: str, option: dict[str, Any]) -> str:
    text = words(option["description"])
    if "choices" in option:
        text += " One of " + ", ".join(f"`{choice}`" for choice in option["choices"]) + "."
    default = f"`{shown(option['default'])}`" if "default" in option else "required" if option.get("required") else ""
    return f"| `{name}` | {kind(option)} | {default} | {text} |"


def table(role: Path) -> str:
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    options = specs["argument_specs"]["main"]["options"]
    rows = [row(name, option) for name, option in options.items()]
    return "\n".join(["| variable | type | default | what it is |", "| --- | --- | --- | --- |", *rows])


def readme(role: Path) -> tuple[Path, str, str]:
    """Return the path of the README, its text, and what the text should be."""
    path = role / "README.md"
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    if not begin or END not in rest:
        raise SystemExit(f"{path} has no marks: put these two lines where the table belongs:\n{BEGIN}\n{END}")
    return path, text, f"{before}{BEGIN}\n{table(role)}\n{END}{after}"


def galaxy_info(role: Path) -> tuple[Path, str, str]:
    """Return the path of meta/main.yml, its text, and what the text should be."""
    path = role / "meta" / "main.yml"
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    description = specs["argument_specs"]["main"]["short_description"]
    info = {"galaxy_info": {"description": description, "standalone": False}}
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return path, text, yaml.safe_dump(info, explicit_start=True, width=120)


def main(arguments: list[str]) -> int:
    different = []
    roles = sorted(path.parent.parent for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
    for path, text, expected in [generate(role) for role in roles for generate in (readme, galaxy_info)]:
        if text == expected:
            continue
        different.append(str(path.relative_to(ROOT)))
        if "--check" not in arguments:
            path.write_text(expected, encoding="utf-8")
    if "--check" in arguments and different:
        print(
            f"These differ from the argument specs: {', '.join(different)}. Run tools/role_readmes.py.", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
