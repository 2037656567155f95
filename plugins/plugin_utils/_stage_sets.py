# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What stage.yml stages: sets that have a name, and any folder of a person's own.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class Unstageable(Exception):
    """One sentence: what is wrong, what was given, what to do."""


@dataclass(frozen=True)
class Part:
    """A file of a set. Where somebody has published its checksum, it has to have that."""

    name: str
    url: str = ""
    algorithm: str = ""
    digest: str = ""
    to: str = ""
    """the folder that it is unpacked into"""
    strip: str = ""
    """the outermost folder in the archive, if that is left out"""

    @property
    def kind(self) -> str:
        for ending, kind in ((".zip", "zip"), (".tar.gz", "tar.gz"), (".tgz", "tar.gz"), (".tar", "tar")):
            if self.name.endswith(ending):
                return kind
        return "file"


@dataclass(frozen=True)
class Set:
    parts: tuple[Part, ...]
    links: Mapping[str, str] = field(default_factory=dict)
    """where old scripts look, below the mount point, and what that is in the set"""
    whole: Part | None = None
    """one archive that is taken instead of the parts, if a folder of one's own has it"""


# The bucket's own name has no certificate: S3's does.
_COCO = "https://s3.amazonaws.com/images.cocodataset.org"
# Not known to answer by https.
_WEIGHTS = "http://models.tensorpack.com/FasterRCNN"

SETS: Mapping[str, Set] = {
    # COCO's own page names no checksums. These are GluonCV's: https://cv.gluon.ai/build/examples_datasets/mscoco.html.
    # For TensorPack's weights nobody has published any.
    "coco2017": Set(
        (
            Part("train2017.zip", f"{_COCO}/zips/train2017.zip", "sha1", "10ad623668ab00c62c096f0ed636d6aff41faca5"),
            Part("val2017.zip", f"{_COCO}/zips/val2017.zip", "sha1", "4950dc9d00dbe1c933ee0170f5797584351d2a41"),
            Part(
                "annotations_trainval2017.zip",
                f"{_COCO}/annotations/annotations_trainval2017.zip",
                "sha1",
                "8551ee4bb5860311e79dace7e79cb91e432e78b3",
            ),
            Part("ImageNet-R50-AlignPadding.npz", f"{_WEIGHTS}/ImageNet-R50-AlignPadding.npz", to="pretrained-models"),
            Part(
                "COCO-R50FPN-MaskRCNN-Standard.npz",
                f"{_WEIGHTS}/COCO-R50FPN-MaskRCNN-Standard.npz",
                to="pretrained-models",
            ),
        ),
        links={f"data/{name}": name for name in ("train2017", "val2017", "annotations", "pretrained-models")},
        # As the old prepare-s3-bucket.sh packed it.
        whole=Part("coco-2017.tar", strip="data"),
    ),
    # The checksum is on https://www.cs.toronto.edu/~kriz/cifar.html.
    "cifar10": Set(
        (
            Part(
                "cifar-10-binary.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "md5",
                "c32a1d4ab5d03f1284b67883e8d87530",
                strip="cifar-10-batches-bin",
            ),
        ),
        links={"cifar10_data": "."},
    ),
    # The sources of the release that the role tensorpack installs, for their examples. GitHub names no checksum.
    "tensorpack": Set(
        (
            Part(
                "tensorpack-0.11.tar.gz",
                "https://github.com/tensorpack/tensorpack/archive/refs/tags/v0.11.tar.gz",
                strip="tensorpack-0.11",
            ),
        )
    ),
}

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,47}")


def set_of(name: str, source: Path | None) -> Set:
    """What that name means; with a folder of one's own, what is in it."""
    if not NAME.fullmatch(name):
        raise Unstageable(
            f"data is {name!r}: give {', '.join(SETS)}, or a name of your own in lower-case letters, digits, dots and "
            "hyphens with source_dir. Example: -e data=coco2017"
        )
    if source is None:
        if name not in SETS:
            raise Unstageable(
                f"data is {name}, which nobody publishes: give {', '.join(SETS)}, or say where yours is. Example: "
                f"-e data={name} -e source_dir=~/{name}"
            )
        return SETS[name]
    if not source.is_dir():
        raise Unstageable(f"source_dir is {source}: there is no such folder on this machine.")
    if name not in SETS:
        return Set(tuple(Part(one) for one in _files(name, source)))
    known = SETS[name]
    if known.whole and (source / known.whole.name).is_file():
        return Set((known.whole,), known.links)
    missing = [part.name for part in known.parts if not (source / part.name).is_file()]
    if missing:
        also = f", or {known.whole.name}" if known.whole else ""
        raise Unstageable(f"source_dir is {source}, which has no {', '.join(missing)}: put that there{also}.")
    return known


def _files(name: str, source: Path) -> Sequence[str]:
    found = sorted(one.name for one in source.iterdir() if one.is_file() and not one.name.startswith("."))
    if not found:
        raise Unstageable(f"source_dir is {source}, which has no file: put archives there (tar, zip), or plain files.")
    if "manifest.json" in found:
        raise Unstageable(f"source_dir is {source}: its manifest.json has a name that is ours, call it otherwise.")
    if any(one.is_dir() for one in source.iterdir()):
        raise Unstageable(f"source_dir is {source}, which has folders: pack them. Example: tar -cf {name}.tar FOLDER")
    return found
