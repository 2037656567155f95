# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Suggest instance types in place of one that does not exist: only those that the plan would accept, as far as the
name of a type tells."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from . import images
from .facts import AccountFacts, Cluster
from .gpu_types import ARM, FAMILIES, NVIDIA, X86, number_of, vcpus_of
from .gpus import NONE, GpuTable, decide, is_old

MOST = 3
_NAME = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d+)(?P<suffix>[a-z]*)")
_ACCELERATED = re.compile(r"(?:g|gr|p|dl|inf|trn)\d")
"""What the names of types with accelerators begin with."""


def suggest(
    facts: AccountFacts, cluster: Cluster, setting: str, name: str, tables: Mapping[str, GpuTable]
) -> list[str]:
    """Return types of the region that are like the name of one that does not exist: its family, or up to three."""
    accepted = [offered for offered in facts.offered_types if _is_accepted(facts, cluster, setting, offered, tables)]
    family = [offered for offered in accepted if _family(offered) == _family(name)]
    if family:
        return family
    is_accelerated = _ACCELERATED.match(name) is not None
    alike = [offered for offered in accepted if (_family(offered) in FAMILIES) is is_accelerated]
    near = difflib.get_close_matches(name, alike, MOST, 0.6)
    if near or not is_accelerated:
        return near
    # Such a name means GPUs: the smallest types that have them, first those of the same class.
    return sorted(alike, key=lambda offered: (offered[0] != name[0], vcpus_of(offered) or 1000, offered))[:MOST]


def _is_accepted(
    facts: AccountFacts, cluster: Cluster, setting: str, name: str, tables: Mapping[str, GpuTable]
) -> bool:
    family = _family(name)
    if _architecture(family) != _required_architecture(facts):
        return False
    if _other_gpus(facts, cluster, setting) not in (None, number_of(name)):
        return False
    known = FAMILIES.get(family)
    if known is None:
        return not family.startswith("mac")
    if known.accelerator.maker != NVIDIA or is_old(family) or _misfits(facts, name):
        return False
    table = tables.get(cluster["default_framework"])
    return table is None or decide(table, known.accelerator).level != NONE


def _family(name: str) -> str:
    return name.partition(".")[0]


def _architecture(family: str) -> str:
    """Return the architecture by AWS's names: those of Graviton have a `g` after the generation, as in m7gd."""
    if family in FAMILIES:
        return FAMILIES[family].accelerator.machine
    match = _NAME.match(family)
    is_arm = family == "a1" or (match is not None and "g" in match["suffix"])
    return ARM if is_arm else X86


def _required_architecture(facts: AccountFacts) -> str:
    """Return the architecture of the image, or of the type that exists."""
    described: Sequence[Mapping[str, object]] = facts.image.described or ()
    if described:
        return str(described[0].get("Architecture", X86))
    existing = list((facts.types or {}).values())
    return ARM if existing and existing[0]["architectures"] == [ARM] else X86


def _other_gpus(facts: AccountFacts, cluster: Cluster, setting: str) -> int | None:
    """Return how many GPUs the type must have because the master trains with the workers; None for any number."""
    other = cluster["instance_type" if setting == "master_instance_type" else "master_instance_type"]
    if not cluster["master_trains"] or other not in (facts.types or {}):
        return None
    return int((facts.types or {})[other]["gpus"])


def _misfits(facts: AccountFacts, name: str) -> bool:
    """Return whether the image has no driver for the type's GPUs."""
    accelerator = FAMILIES[_family(name)].accelerator
    kind = {
        "name": name,
        "architectures": [accelerator.machine],
        "gpus": number_of(name),
        "gpu_maker": accelerator.maker,
    }
    return any(images.misfit(image, kind) for image in (facts.image.described or ())[:1])
