"""The processor seconds and the files of each node that unpacks a staged set, by the number of nodes. No machines: the
node's own code unpacks each share in this process, from a folder instead of the bucket.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "files/node"), str(Path(__file__).parent)]

from deeplearning.contract.datasets import DatasetFile  # noqa: E402
from deeplearning.contract.manifest import build  # noqa: E402
from deeplearning.unpacking.extract import UnpackFolder, finish, unpack  # noqa: E402
from deeplearning.unpacking.ranged_reader import Source  # noqa: E402
from report import Row, write  # noqa: E402

FILES, LARGEST = 4_000, 60_000
NODES = (1, 2, 4, 8)
ROUNDS = 5


def pack(folder: Path) -> None:
    """A tar and a zip with the same files, staged."""
    made = random.Random(0)
    folder.mkdir()
    with tarfile.open(folder / "a.tar", "w") as packed, zipfile.ZipFile(folder / "b.zip", "w") as zipped:
        for number in range(FILES):
            info = tarfile.TarInfo(f"{number % 100:02}/{number:06}.jpg")
            info.size = made.randrange(LARGEST)
            content = made.randbytes(info.size)
            packed.addfile(info, io.BytesIO(content))
            zipped.writestr(f"zip/{info.name}", content)
    parts = [DatasetFile(name) for name in ("a.tar", "b.zip")]
    files = {part.name: (folder / part.name).read_bytes() for part in parts}
    contents = {name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()}
    (folder / "manifest.json").write_text(json.dumps(build("small", parts, contents, {})))


def unpacked(source: Path, root: Path, shares: int) -> tuple[list[float], list[int]]:
    """Processor seconds and files of each node."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(mode=0o700)
    root.chmod(0o1777)
    folder, staged = UnpackFolder(root, "small"), Source(str(source), "here")
    seconds, files = [], []
    for share in range(shares):
        started = time.process_time()
        files.append(unpack(folder, staged, share, shares, lambda _event: None)["files"])
        seconds.append(time.process_time() - started)
    manifest = staged.manifest()
    finish(folder, manifest, shares, staged.attempt(manifest))
    return seconds, files


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, root = Path(scratch, "staged"), Path(scratch, "data")
        pack(source)
        unpacked(source, root, 1)
        alone = statistics.median(sum(unpacked(source, root, 1)[0]) for _ in range(ROUNDS))
        rows, lines = [], ["", f"{2 * FILES:,} files in a tar and a zip:", "", "| nodes | files of each | seconds |"]
        lines.append("| --- | --- | --- |")
        for nodes in NODES:
            rounds = [unpacked(source, root, nodes) for _ in range(ROUNDS)]
            files = rounds[0][1]
            together = statistics.median(sum(seconds) for seconds, _files in rounds)
            uneven = max(abs(count * nodes / (2 * FILES) - 1) for count in files)
            rows.append(Row(f"{nodes} nodes together, over one", together / alone, "×", 1.15))
            rows.append(Row(f"{nodes} nodes: the least even share of the files", 100 * uneven, "% off", 10))
            lines.append(f"| {nodes} | {min(files):,} to {max(files):,} | {together:.2f} |")
    write("unpacking", "Unpacking, in processor seconds", rows, "\n".join(lines))


if __name__ == "__main__":
    main()
