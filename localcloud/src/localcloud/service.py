"""The service: everything that runs between `up` and `down`, in one process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from localcloud.api.ec2 import images
from localcloud.api.iam import identities as iam
from localcloud.core.calls import CallLog
from localcloud.core.clock import RealClock
from localcloud.core.cloud import Cloud
from localcloud.core.latency import Latency
from localcloud.core.settings import EDGE_ADDRESS, PORT, SYSTEM, TLS_PORT, image_with
from localcloud.endpoint.front import Front
from localcloud.endpoint.server import HttpServer
from localcloud.endpoint.tls import Authority
from localcloud.image.features import built
from localcloud.machines.manager import HostMachines
from localcloud.machines.nspawn import Limits
from localcloud.state import CALLS, IMAGES

log = logging.getLogger(__name__)


class Service:
    def __init__(self, folder: Path, latency: Latency, base: Path | None, limits: Limits, strict: bool) -> None:
        """`base` is the image that machines boot from; without one, instances exist in the API alone."""
        self.started = time.time()
        self._ended = threading.Event()
        lock = threading.RLock()
        self._clock = RealClock(lock)
        self._base = base
        self.cloud = Cloud(self._clock, lock, latency, CallLog(CALLS), strict)
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
        for features, layer in built(IMAGES).items():
            self.add_image(features, layer)

    def add_image(self, features: tuple[str, ...], layer: Path) -> str:
        """Make a built image known, and say its id."""
        name = image_with(features)
        image = images.Image(name, features, layer, f"{SYSTEM} with {', '.join(features)}", family=name)
        images.register(self.cloud, image)
        return image.id

    def _layers_of(self, image_id: str) -> Sequence[Path]:
        if self._base is None:
            raise RuntimeError("a service without a base image boots no machines")
        image = images.images_of(self.cloud).get(image_id)
        if image and image.layers:
            return image.layers
        result = images.path_of(self.cloud, image_id)
        return [self._base] if result is None or result == self._base else [result, self._base]

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
