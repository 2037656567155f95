"""What the README has in tables is what the local cloud has."""

from __future__ import annotations

import re
from pathlib import Path

import localcloud
from localcloud.core.latency import AWS
from localcloud.gpu import library
from localcloud.image.features import FEATURES
from localcloud_kits.cli_kit import COMMANDS, FAULTS

PROJECT = Path(__file__).parents[2]
PACKAGE = Path(localcloud.__file__).parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """From a heading to the next of its kind."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| (`.*?) \|", text.replace("\\|", "/"), re.M)


def test_figures_of_the_latency_profile() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", section("Latencies"), re.M)
    assert {what: float(seconds) for what, seconds in rows} == AWS


def test_faults() -> None:
    named = {name for cell in first_cells(section("Faults")) for name in re.findall(r"`([a-z-]+)", cell)}
    assert named | {"clear"} == set(FAULTS)


def test_commands() -> None:
    assert {cell.strip("`").split()[0] for cell in first_cells(section("Commands"))} == set(COMMANDS)


def test_features_of_images() -> None:
    assert f"`--with` takes {', '.join(FEATURES)}" in section("Images")


def test_each_place_that_it_names_is_there() -> None:
    places = {
        word
        for cell in first_cells(section("For the next developer"))
        for word in re.findall(r"`([^`]+)`", cell)
        if "*" not in word
    }
    missing = [place for place in sorted(places) if not (PROJECT / place).exists() and not (PACKAGE / place).exists()]
    assert missing == []


def test_keys_of_the_state_of_gpus() -> None:
    named = {name for cell in first_cells(section("Machines")) for name in re.findall(r"`([a-z_]+)", cell)}
    source = (Path(library.__file__).with_name("nvml.c")).read_text(encoding="utf-8")
    known = set(re.findall(r'(?:find|number|copy|is_on)\([^"()]+, "([a-z_]+)"', source))
    known |= set(re.findall(r'^(?:TEXT|NUMBER)\(.*"([a-z_]+)"\)', source, re.M)) | {"ecc_uncorrected", "ecc_corrected"}
    assert known <= named and "memory_total" in known and "lost" in known
