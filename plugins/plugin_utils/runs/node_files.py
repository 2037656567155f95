# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""How a node sends files, and how they are read.

The node needs nothing of this collection: it may have failed before anything was installed. It prints a line for each
file, the name and the packed content. So what has arrived counts, even if the node hangs in the middle. It may print
anything: only files with expected names are read, each once, each up to a size, and all of them up to another. Names
that `contract/forbidden_names.py` refuses are never read, even if they are expected.
"""

from __future__ import annotations

import base64
import binascii
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator

from ...module_utils.contract.forbidden_names import NameFilter
from ..untrusted import InvalidValue


def functions(largest: int) -> str:
    """Return the functions of a node's shell that the commands below are for. Of a larger file the end is sent."""
    return f"""\
limited() {{ timeout -k 2 15 sh -c "$1" 2>&1 </dev/null; }}
send() {{ printf '%s ' "$1"; limited "$2" | tail -c {largest} | gzip -c | base64 -w 0; echo; }}
"""


def send(name: str, command: str) -> str:
    """Return the shell command that sends what a command prints."""
    return f"send {name} {shlex.quote(command)}"


def send_each(listing: str, folder: str, prefix: str = "") -> str:
    """Return the shell command that sends the files of a folder that a command lists, in words without spaces."""
    file = f'"cat {shlex.quote(folder)}/$file"'
    return f'for file in $(limited {shlex.quote(listing)}); do\nsend "{prefix}$file" {file}\ndone'


def read(
    lines: Iterable[str], is_expected: Callable[[str], object], largest: int, most: int
) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents. Raise InvalidValue for more than `most` bytes in all."""
    received: set[str] = set()
    names = NameFilter()
    remaining = most
    for line in lines:
        name, _space, packed = line.partition(" ")
        if name in received or not is_expected(name) or names.accept(name):
            continue
        received.add(name)
        content = _unpack(packed, largest)
        remaining -= len(content)
        if remaining < 0:
            raise InvalidValue(f"more than {most >> 20} MiB")
        if content:
            yield name, content


def _unpack(packed: str, largest: int) -> bytes:
    try:
        content = base64.b64decode(packed, validate=True)
        return zlib.decompressobj(wbits=31).decompress(content, largest)
    except (binascii.Error, ValueError, zlib.error):
        return b""
