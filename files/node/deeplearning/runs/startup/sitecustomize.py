"""Python (3.7 or newer) imports this as it starts in a run: it writes its stacks when the wrapper asks for them.

See stacks.py. With DEEPLEARNING_GPU_TRACKERS=off it loads deeplearning_trackers.py. A module of the same name that this
one hides is imported as well.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys


def register() -> None:
    import faulthandler

    number, _colon, path = os.environ["DEEPLEARNING_STACKS"].partition(":")
    file = open(path, "ab", buffering=0)  # noqa: SIM115
    faulthandler.register(int(number), file=file, all_threads=True)


def import_hidden() -> None:
    own = os.path.dirname(os.path.abspath(__file__))
    path = sys.path[:]
    sys.path[:] = [each for each in path if os.path.abspath(each) != own]
    own_module = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = own_module
    finally:
        sys.path[:] = path


# No program must fail because of this.
with contextlib.suppress(Exception):
    register()
with contextlib.suppress(Exception):
    if os.environ.get("DEEPLEARNING_GPU_TRACKERS") == "off":
        importlib.import_module("deeplearning_trackers").install()
import_hidden()
