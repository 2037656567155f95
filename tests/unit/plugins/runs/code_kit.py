"""What is in the archive with the code of a run."""

from __future__ import annotations

import tarfile
from io import BytesIO

from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import code_archive


def unpacked(packed: code_archive.Packed) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=BytesIO(packed.archive)) as archive:
        return {member.name: member for member in archive}
