"""The process between `up` and `down`: it starts the service and waits for its end."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import warnings
from pathlib import Path

from localcloud.control import Control, ControlServer
from localcloud.core.latency import latency_from
from localcloud.machines.nspawn import Limits
from localcloud.service import Service
from localcloud.state import RUN, SOCKET, remember_service

log = logging.getLogger(__name__)


def main() -> None:
    """Started by `localcloud up`, which waits for a line on the given file descriptor."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", default="none")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--base", type=Path)
    parser.add_argument("--cpus", type=float)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--ready", type=int, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    logging.captureWarnings(True)
    # Most of AWS's error codes stand in no service model, and moto's serializer finds that worth a warning each time.
    warnings.filterwarnings("ignore", message=r"Exception\(_Refused\)")
    os.umask(0o022)
    limits = Limits(arguments.cpus, arguments.memory)
    service = Service(RUN, latency_from(arguments.latency), arguments.base, limits, arguments.strict)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    try:
        control = ControlServer(SOCKET, Control(service))
        remember_service()
        os.write(arguments.ready, b"up\n")
        os.close(arguments.ready)
        service.wait()
        log.info("ending")
        control.close()
    finally:
        service.close()
    log.info("ended")


if __name__ == "__main__":
    main()
