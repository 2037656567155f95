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
    sha256: str = ""
    """Its SHA-256, if one is published."""
    mirrors: tuple[str, ...] = ()
    """Other addresses of the same bytes. They are tried before `url` unless it is quicker, and need a SHA-256."""
    files_sha256: str = ""
    """For an archive that is packed anew at each download: see archives.files_sha256."""
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

    @property
    def is_published(self) -> bool:
        return bool(self.sha256 or self.files_sha256)


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
# The bucket behind models.tensorpack.com: github.com/tensorpack/tensorpack/issues/1554.
_WEIGHTS = "https://s3.amazonaws.com/models.tensorpack.com/FasterRCNN"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
TENSORPACK_COMMIT = "1547a54e8546494614ca31c984a1bfd1d0e24b77"
"""TensorPack's last commit, of August 2023. Its examples at the release 0.11 are for TensorFlow 1 alone."""


def _coco(path: str, sha256: str) -> DatasetFile:
    return DatasetFile(path.rpartition("/")[2], f"{_COCO}/{path}", sha256)


def _weights(name: str) -> DatasetFile:
    return DatasetFile(name, f"{_WEIGHTS}/{name}", to="pretrained-models")


def _mnist(name: str, sha256: str) -> DatasetFile:
    return DatasetFile(f"{name}.gz", f"{_MNIST}/{name}.gz", sha256)


# The checksums of COCO, CIFAR-10 and MNIST are those in tensorflow-datasets 4.9.10 (url_checksums/*.txt).
DATASETS: Mapping[str, Dataset] = {
    # The publisher's list of weights linked checksums (tensorpack/issues/840), whose values are in no public source.
    "coco2017": Dataset(
        (
            _coco("zips/train2017.zip", "69a8bb58ea5f8f99d24875f21416de2e9ded3178e903f1f7603e283b9e06d929"),
            _coco("zips/val2017.zip", "4f7e2ccb2866ec5041993c9cf2a952bbed69647b115d0f74da7ce8f4bef82f05"),
            _coco(
                "annotations/annotations_trainval2017.zip",
                "113a836d90195ee1f884e704da6304dfaaecff1f023f49b6ca93c4aaae470268",
            ),
            _weights("ImageNet-R50-AlignPadding.npz"),
            _weights("COCO-R50FPN-MaskRCNN-Standard.npz"),
        ),
        links={f"data/{name}": name for name in ("train2017", "val2017", "annotations", "pretrained-models")},
        # As the old prepare-s3-bucket.sh packed it.
        archive=DatasetFile("coco-2017.tar", strip="data"),
        gib=21,
    ),
    "cifar10": Dataset(
        (
            DatasetFile(
                "cifar-10-binary.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                # The publisher serves 55 to 85 kB/s since June 2026: github.com/pytorch/vision/issues/9536. This copy
                # is the one of Swift for TensorFlow.
                mirrors=(
                    "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
                ),
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
            _mnist("train-images-idx3-ubyte", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            _mnist("train-labels-idx1-ubyte", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            _mnist("t10k-images-idx3-ubyte", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            _mnist("t10k-labels-idx1-ubyte", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ),
        files={
            "train-images-idx3-ubyte": 47_040_016,
            "train-labels-idx1-ubyte": 60_008,
            "t10k-images-idx3-ubyte": 7_840_016,
            "t10k-labels-idx1-ubyte": 10_008,
        },
    ),
    # TensorPack's sources, for their examples. GitHub packs an archive anew at each download, so the checksum is that
    # of the list of its files: archives.files_sha256 of a tar.gz by `git archive --prefix=tensorpack-COMMIT/ COMMIT`.
    "tensorpack": Dataset(
        (
            DatasetFile(
                "tensorpack-1547a54e.tar.gz",
                f"https://github.com/tensorpack/tensorpack/archive/{TENSORPACK_COMMIT}.tar.gz",
                files_sha256="88bd05020306e17ec6e7eb43027fe1f6cec5cfbf1b364a205eee839e5b8ec246",
                strip=f"tensorpack-{TENSORPACK_COMMIT}",
            ),
        )
    ),
}
ON_DEMAND = ("cifar10", "mnist")
"""Those that nodes download by themselves when a run needs them."""
STAGED = ("coco2017", "cifar10", "tensorpack")
"""Those that stage.yml brings to the account's bucket of data sets."""
LINKS = tuple(link for dataset in DATASETS.values() for link in dataset.links)
