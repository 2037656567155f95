# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The data sets that stage.yml stages: those with a name, and any folder of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...module_utils.contract import datasets
from ...module_utils.contract.datasets import Dataset, DatasetFile
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.identifiers import is_dataset_name

DATASETS = {name: datasets.DATASETS[name] for name in datasets.STAGED}


def set_of(name: str, source: Path | None) -> Dataset:
    """Return the data set of this name; with the user's own folder, what is in it."""
    if not is_dataset_name(name):
        raise UserError(
            f"dataset is {name!r}; it must be {', '.join(DATASETS)}, or a name of your own in lower-case letters, "
            "digits, dots and hyphens with source_dir. Example: -e dataset=coco2017"
        )
    if name in datasets.DATASETS and name not in DATASETS:
        raise UserError(
            f"dataset is {name}, which nodes download from its publisher: give your own files another name. Example: "
            f"-e dataset=my-{name} -e source_dir=~/{name}"
        )
    if source is None:
        if name not in DATASETS:
            raise UserError(
                f"dataset is {name}, which is not published: use {', '.join(DATASETS)}, or name your folder. Example: "
                f"-e dataset={name} -e source_dir=~/{name}"
            )
        return DATASETS[name]
    if not source.is_dir():
        raise UserError(f"source_dir is {source}: there is no such folder on this machine.")
    if name not in DATASETS:
        return Dataset(tuple(DatasetFile(file) for file in _files(name, source)))
    known = DATASETS[name]
    if known.archive and (source / known.archive.name).is_file():
        return Dataset((known.archive,), known.links)
    missing = [part.name for part in known.parts if not (source / part.name).is_file()]
    if missing:
        also = f", or {known.archive.name}" if known.archive else ""
        raise UserError(f"source_dir is {source}, which has no {', '.join(missing)}: put them there{also}.")
    return known


def _files(name: str, source: Path) -> Sequence[str]:
    names = sorted(file.name for file in source.iterdir() if file.is_file() and not file.name.startswith("."))
    if not names:
        raise UserError(f"source_dir is {source}, which has no file: put archives there (tar, zip), or plain files.")
    if "manifest.json" in names:
        raise UserError(f"source_dir is {source}: its manifest.json has a reserved name, so rename it.")
    if any(file.is_dir() for file in source.iterdir()):
        raise UserError(f"source_dir is {source}, which has folders: pack them. Example: tar -cf {name}.tar FOLDER")
    return names
