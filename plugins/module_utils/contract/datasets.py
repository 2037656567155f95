# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The data sets that have a name, as their publishers offer them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

GENERATED = "generated"
"""Not a download: nodes generate it, for trying things out."""
GENERATED_MARKER = "GENERATED"
"""A file in a folder of generated data."""


@dataclass(frozen=True)
class DatasetFile:
    """A file of a data set."""

    name: str
    url: str = ""
    algorithm: str = ""
    digest: str = ""
    """The published checksum, if any."""
    to: str = ""
    """The folder of the data set that it is unpacked into."""
    strip: str = ""
    """The outermost folder in the archive, if that is left out."""

    @property
    def kind(self) -> str:
        for ending, kind in ((".zip", "zip"), (".tar.gz", "tar.gz"), (".tgz", "tar.gz"), (".tar", "tar")):
            if self.name.endswith(ending):
                return kind
        return "file"


@dataclass(frozen=True)
class Dataset:
    parts: tuple[DatasetFile, ...]
    links: Mapping[str, str] = field(default_factory=dict)
    """Where old scripts look, below the mount point, and which path in the data set that is."""
    archive: DatasetFile | None = None
    """One archive that replaces all parts, if the user's own folder has it."""
    files: Mapping[str, int] = field(default_factory=dict)
    """The files that nodes unpack by themselves, with their sizes."""
    gib: float = 0.1
    """About how much space it takes when it is unpacked."""


# The bucket's own name has no certificate: S3's does.
_COCO = "https://s3.amazonaws.com/images.cocodataset.org"
# Not known to answer by https.
_WEIGHTS = "http://models.tensorpack.com/FasterRCNN"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"


def _mnist(name: str, md5: str) -> DatasetFile:
    return DatasetFile(f"{name}.gz", f"{_MNIST}/{name}.gz", "md5", md5)


DATASETS: Mapping[str, Dataset] = {
    # COCO's own page names no checksums. These are GluonCV's: https://cv.gluon.ai/build/examples_datasets/mscoco.html.
    # TensorPack's weights have no published checksum.
    "coco2017": Dataset(
        (
            DatasetFile(
                "train2017.zip", f"{_COCO}/zips/train2017.zip", "sha1", "10ad623668ab00c62c096f0ed636d6aff41faca5"
            ),
            DatasetFile("val2017.zip", f"{_COCO}/zips/val2017.zip", "sha1", "4950dc9d00dbe1c933ee0170f5797584351d2a41"),
            DatasetFile(
                "annotations_trainval2017.zip",
                f"{_COCO}/annotations/annotations_trainval2017.zip",
                "sha1",
                "8551ee4bb5860311e79dace7e79cb91e432e78b3",
            ),
            DatasetFile(
                "ImageNet-R50-AlignPadding.npz", f"{_WEIGHTS}/ImageNet-R50-AlignPadding.npz", to="pretrained-models"
            ),
            DatasetFile(
                "COCO-R50FPN-MaskRCNN-Standard.npz",
                f"{_WEIGHTS}/COCO-R50FPN-MaskRCNN-Standard.npz",
                to="pretrained-models",
            ),
        ),
        links={f"data/{name}": name for name in ("train2017", "val2017", "annotations", "pretrained-models")},
        # As the old prepare-s3-bucket.sh packed it.
        archive=DatasetFile("coco-2017.tar", strip="data"),
        gib=21,
    ),
    # The checksum is on https://www.cs.toronto.edu/~kriz/cifar.html.
    "cifar10": Dataset(
        (
            DatasetFile(
                "cifar-10-binary.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "md5",
                "c32a1d4ab5d03f1284b67883e8d87530",
                strip="cifar-10-batches-bin",
            ),
        ),
        # The publisher's archive has a folder, and old scripts look there.
        gib=0.2,
        links={"cifar10_data": ".", "data/cifar10/cifar-10-batches-bin": "."},
        files={name: 30_730_000 for name in (*(f"data_batch_{part}.bin" for part in range(1, 6)), "test_batch.bin")},
    ),
    "mnist": Dataset(
        (
            _mnist("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            _mnist("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432"),
            _mnist("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3"),
            _mnist("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        files={
            "train-images-idx3-ubyte": 47_040_016,
            "train-labels-idx1-ubyte": 60_008,
            "t10k-images-idx3-ubyte": 7_840_016,
            "t10k-labels-idx1-ubyte": 10_008,
        },
    ),
    # The sources of the release that the role tensorpack installs, for their examples. GitHub names no checksum.
    "tensorpack": Dataset(
        (
            DatasetFile(
                "tensorpack-0.11.tar.gz",
                "https://github.com/tensorpack/tensorpack/archive/refs/tags/v0.11.tar.gz",
                strip="tensorpack-0.11",
            ),
        )
    ),
}
ON_DEMAND = ("cifar10", "mnist")
"""Those that nodes download by themselves when a run needs them."""
STAGED = ("coco2017", "cifar10", "tensorpack")
"""Those that stage.yml brings to the account's bucket of data sets."""
LINKS = tuple(link for dataset in DATASETS.values() for link in dataset.links)
