"""The service: everything that runs between `up` and `down`, in one process."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from localcloud.api import iam, images
from localcloud.api.front import Front
from localcloud.calls import CallLog
from localcloud.clock import RealClock
from localcloud.cloud import Cloud
from localcloud.control import Control, ControlServer
from localcloud.image.build import built_feature_images
from localcloud.latency import Latency, latency_from
from localcloud.machines.manager import HostMachines
from localcloud.machines.nspawn import Limits
from localcloud.server import HttpServer
from localcloud.settings import EDGE_ADDRESS, PORT, TLS_PORT
from localcloud.state import CALLS, IMAGES, RUN, SOCKET, remember_service
from localcloud.tls import Authority

log = logging.getLogger(__name__)


class Service:
    def __init__(self, folder: Path, latency: Latency, base: Path | None, limits: Limits) -> None:
        """`base` is the image that machines boot from; without one, instances exist in the API alone."""
        self.started = time.time()
        self._ended = threading.Event()
        lock = threading.RLock()
        self._clock = RealClock(lock)
        self._base = base
        self.cloud = Cloud(self._clock, lock, latency, CallLog(CALLS))
        self.machines: HostMachines | None = None
        front = Front(self.cloud)
        self.operator = iam.bootstrap(self.cloud)
        self._servers = [HttpServer(front, "127.0.0.1", PORT)]
        if base is not None:
            self._give_machines(folder, base, limits, front)
        for server in self._servers:
            server.start()

    def _give_machines(self, folder: Path, base: Path, limits: Limits, front: Front) -> None:
        authority = Authority()
        self.machines = HostMachines(self.cloud, folder, self._layers_of, limits, authority.pem)
        self.machines.open()
        self.cloud.machines = self.machines
        self.cloud.network = self.machines.network
        self._clock.afterwards = self.machines.follow
        self._servers.append(HttpServer(front, EDGE_ADDRESS, TLS_PORT, authority.context()))
        images.register(
            self.cloud, images.Image(images.BASE.name, path=base, owner=images.BASE.owner, family=images.BASE.family)
        )
        for features, layer in built_feature_images(IMAGES).items():
            self.add_image(features, layer)

    def add_image(self, features: tuple[str, ...], layer: Path) -> str:
        """Make a built image known, and say its id."""
        name = f"localcloud-debian-12-{'-'.join(features)}"
        image = images.Image(name, features, layer, f"Debian 12 with {', '.join(features)}", family=name)
        images.register(self.cloud, image)
        return image.id

    def _layers_of(self, image_id: str) -> Sequence[Path]:
        if self._base is None:
            raise RuntimeError("a service without a base image boots no machines")
        found = images.path_of(self.cloud, image_id)
        return [self._base] if found is None or found == self._base else [found, self._base]

    def wait(self) -> None:
        self._ended.wait()

    def stop(self) -> None:
        self._ended.set()

    def close(self) -> None:
        self._clock.stop()
        if self.machines is not None:
            self.machines.close()
        for server in self._servers:
            server.stop()
        self.cloud.calls.close()


def main() -> None:
    """Started by `localcloud up`, which waits for a line on the given file descriptor."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", default="none")
    parser.add_argument("--base", type=Path)
    parser.add_argument("--cpus", type=float)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--ready", type=int, required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    logging.captureWarnings(True)
    # Most of AWS's error codes stand in no service model, and moto's serializer finds that worth a warning each time.
    warnings.filterwarnings("ignore", message=r"Exception\(_Refused\)")
    os.umask(0o022)
    service = Service(RUN, latency_from(given.latency), given.base, Limits(given.cpus, given.memory))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    try:
        control = ControlServer(SOCKET, Control(service))
        remember_service()
        os.write(given.ready, b"up\n")
        os.close(given.ready)
        service.wait()
        log.info("ending")
        del control
    finally:
        service.close()
    log.info("ended")


if __name__ == "__main__":
    main()
