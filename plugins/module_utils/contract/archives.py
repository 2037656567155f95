# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Tar archives whose damage is noticed."""

from __future__ import annotations

import tarfile
from tarfile import HeaderError, ReadError, TarFile


class StrictTarInfo(tarfile.TarInfo):
    """Raise ReadError for a damaged or missing header, which tarfile takes for the archive's end."""

    @classmethod
    def fromtarfile(cls, tarfile: TarFile) -> StrictTarInfo:
        try:
            return super().fromtarfile(tarfile)
        except HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":
                raise
            raise ReadError(f"no header at {tarfile.offset}: {error}") from None
