"""What a node needs to fetch data sets and to unpack them. No machines: the node's own code runs in this program.

It fetches from the local cloud's S3, where each answer comes as late and as slowly as S3's do, but for the scale of
both. One request at a time, as nodes did it before, and as many as they make now.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "files/node"), str(Path(__file__).parent)]

from deeplearning import aws  # noqa: E402
from deeplearning.contract.datasets import DatasetFile  # noqa: E402
from deeplearning.contract.manifest import build  # noqa: E402
from deeplearning.data import objects, ranged_reader  # noqa: E402
from deeplearning.data.extract import Unpacking  # noqa: E402
from deeplearning.data.ranged_reader import Source  # noqa: E402
from deeplearning.data.sources import Progress  # noqa: E402
from report import Row, write  # noqa: E402

from tests.account import kit  # noqa: E402

SCALE = 20
"""Two cores cannot serve what S3 does. So a connection is so many times slower, and the pieces are smaller."""
FIRST_BYTE_SECONDS = 0.03
CONNECTION_RATE = 90e6 / SCALE
LARGE_FILES, LARGE_FILE = 32, 2 << 20
FETCHES = 3
UNLIMITED_FILES = 128


class LimitedFront:
    """S3 as one connection sees it, if `limited`. It counts the requests for objects' content, and their bytes."""

    limited, requests, bytes = False, 0, 0

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        answer = self._application(environ, start_response)
        return self._paced(answer) if "HTTP_RANGE" in environ else answer

    def _paced(self, answer: Iterable[bytes]) -> Iterator[bytes]:
        type(self).requests += 1
        due = time.monotonic() + FIRST_BYTE_SECONDS
        for content in answer:
            type(self).bytes += len(content)
            for start in range(0, len(content), 64 << 10):
                part = content[start : start + (64 << 10)]
                due += len(part) / CONNECTION_RATE
                if self.limited:
                    time.sleep(max(0.0, due - time.monotonic()))
                yield part


def serve(parent: Connection) -> None:
    """Be the local cloud, in a process of its own. Each message limits it or not, and is answered by its counts."""
    with tempfile.TemporaryDirectory() as scratch, kit.account_in(Path(scratch), wrap=LimitedFront) as account:
        parent.send({name: value for name, value in account.environment.items() if name.startswith("AWS_")})
        account.client("s3").create_bucket(Bucket="data")
        for limited in iter(parent.recv, None):
            counts = LimitedFront.requests, LimitedFront.bytes
            LimitedFront.limited, LimitedFront.requests, LimitedFront.bytes = limited, 0, 0
            parent.send(counts)


@contextmanager
def cloud() -> Iterator[Connection]:
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    try:
        os.environ.update(ours.recv())
        ours.send(False)
        ours.recv()
        yield ours
    finally:
        ours.send(None)
        process.join()


def put_large(name: str, files: int) -> int:
    """Stage a tar of large files in the bucket. Return its size."""
    made, packed = random.Random(0), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for number in range(files):
            info = tarfile.TarInfo(f"{number:04}.bin")
            info.size = LARGE_FILE
            archive.addfile(info, io.BytesIO(made.randbytes(info.size)))
    content = packed.getvalue()
    sums = {"a.tar": (len(content), hashlib.sha256(content).hexdigest())}
    client = kit.new_session(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"], kit.REGION).client(
        "s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]
    )
    client.put_object(Bucket="data", Key=f"{name}/a.tar", Body=content)
    listed = json.dumps(build(name, [DatasetFile("a.tar")], sums, {}))
    client.put_object(Bucket="data", Key=f"{name}/manifest.json", Body=listed)
    return len(content)


def fetch_archive(name: str, scratch: Path) -> None:
    """As stage.yml lets one node unpack a set."""
    root = Path(tempfile.mkdtemp(dir=scratch))
    root.chmod(0o1777)
    Unpacking(root, name, Source(f"s3://data/{name}", kit.REGION)).unpack(0, 1, lambda _event: None)
    shutil.rmtree(root)


def fetch_object(name: str, scratch: Path) -> None:
    """As a run with -e dataset=s3://… stages it."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    objects.fetch_s3(aws.AwsClient(kit.REGION), "data", f"{name}/a.tar", folder, Progress(lambda _event: None))
    shutil.rmtree(folder)


FETCHED = {"an archive is unpacked": fetch_archive, "an object is copied to a file": fetch_object}


def seconds_of(fetch: Callable[[str, Path], None], scratch: Path, requests: int, size: int) -> float:
    for module in (aws, objects, ranged_reader):
        module.PARALLEL_REQUESTS = requests
        module.RANGE_BYTES = size
    started = time.monotonic()
    fetch("large", scratch)
    return time.monotonic() - started


def measured_alone(what: str, scratch: Path) -> tuple[float, int]:
    """Return the processor seconds of a process that fetches without a limit, and the bytes of memory that it takes."""
    FETCHED[what]("small", scratch)
    seconds, memory = time.process_time(), memory_of("VmRSS")
    FETCHED[what]("unlimited", scratch)
    return time.process_time() - seconds, memory_of("VmHWM") - memory


def memory_of(name: str) -> int:
    """Return a figure of this process from the kernel: what it has in memory, or had at most."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def fetching(scratch: Path) -> tuple[list[Row], list[str]]:
    rows, lines = [], [""]
    piece, many = aws.RANGE_BYTES // SCALE, aws.PARALLEL_REQUESTS
    with cloud() as limits, get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        size = put_large("large", LARGE_FILES)
        put_large("small", 1)
        unlimited = put_large("unlimited", UNLIMITED_FILES)
        lines += [
            f"Fetching {size / 1e6:.0f} MB from the local cloud's S3, which stands in for AWS's: an answer "
            "begins after",
            f"{FIRST_BYTE_SECONDS * 1000:.0f} ms, and a connection has {CONNECTION_RATE / 1e6:g} MB/s, a {SCALE}th of "
            f"S3's 90, as are the pieces of {piece / 1e6:.2f} MB.",
            f"Medians of {FETCHES}. One request at a time is how nodes fetched before.",
            "",
            "| what | seconds by one request | MB/s | by several | MB/s | requests |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for what, fetch in FETCHED.items():
            # An object came by one request before.
            single = piece if fetch is fetch_archive else size
            measurements: list[tuple[float, float]] = []
            for _round in range(FETCHES):
                limited(limits)
                before = seconds_of(fetch, scratch, 1, single)
                limited(limits)
                measurements.append((before, seconds_of(fetch, scratch, many, piece)))
            requests, count = limited(limits, False)
            one, several = (statistics.median(seconds) for seconds in zip(*measurements, strict=True))
            row = f"{what}: seconds with {many} requests at a time, over those with one"
            rows.append(Row(row, several / one, "×", 0.2))
            rows.append(Row(f"{what}: bytes that were fetched, over its size", count / size, "×", 1.01))
            speeds = [size / 1e6 / seconds for seconds in (one, several)]
            lines.append(f"| {what} | {one:.2f} | {speeds[0]:.1f} | {several:.2f} | {speeds[1]:.1f} | {requests} |")
        for what in FETCHED:
            seconds, memory = pool.apply(measured_alone, (what, scratch))
            row = f"{what}: processor seconds of a GB, with its checksum, and written"
            rows.append(Row(row, seconds / unlimited * 1e9, "s", None))
            rows.append(Row(f"{what}: most memory, with pieces of 8 MiB", memory / 2**20, "MiB", 256))
    return rows, lines


def limited(limits: Connection, limit: bool = True) -> tuple[int, int]:
    """Limit connections or not. Return the requests for content since the last call, and their bytes."""
    limits.send(limit)
    counts: tuple[int, int] = limits.recv()
    return counts


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        rows, lines = fetching(Path(scratch))
    write("unpacking", "Fetching and unpacking", rows, "\n".join(lines))


if __name__ == "__main__":
    main()
