"""NVIDIA's management library as the local cloud has it, for programs that run on this machine."""

from __future__ import annotations

from pathlib import Path

from localcloud.testing import gpus
from tests import debian


class Gpus:
    """The file that says what the library reports. A test may change it while programs run."""

    def __init__(self, folder: Path) -> None:
        debian.installed_program("cc", "gcc", "libc6-dev")
        self.library = gpus.build_library(debian.CACHE / "nvml")
        self.file = folder / "gpus"
        self._values: dict[str, object] = {"driver": "595.91.07", "cuda": 13020, "name": "NVIDIA H100"}

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which programs find the library and the file."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "LOCALCLOUD_GPUS": str(self.file)}

    def set(self, **values: object) -> None:
        """Set values of all GPUs or, as in `gpu3_lost`, of one; None removes a value."""
        self._values.update(values)
        lines = [f"{_key(name)} {value}\n" for name, value in self._values.items() if value is not None]
        replacement = self.file.with_suffix(".new")
        replacement.write_text("".join(lines), encoding="utf-8")
        replacement.rename(self.file)


def _key(name: str) -> str:
    gpu, separator, key = name.partition("_")
    return f"{gpu.removeprefix('gpu')}.{key}" if separator and gpu.startswith("gpu") else name
