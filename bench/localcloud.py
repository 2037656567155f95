"""How quick the local cloud is: image, up, machines, a thousand instances, down. Needs root and no other load."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from report import Row, write  # noqa: E402

from localcloud import state  # noqa: E402
from localcloud.image.build import base_image  # noqa: E402
from localcloud_kits.booted_kit import Clients, Network, command, environment, localcloud, wait_for  # noqa: E402


def seconds(action: Callable[[], Any]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def image_build() -> float:
    """Built beside the one in use, with the packages of that build at hand."""
    base_image(state.IMAGES, lambda _line: None)
    with tempfile.TemporaryDirectory(dir=state.HOME) as folder:
        (Path(folder) / "packages").symlink_to(state.IMAGES / "packages")
        return seconds(lambda: base_image(Path(folder), lambda _line: None))


def up() -> float:
    def start() -> None:
        done = localcloud("up")
        assert done.returncode == 0, done.stderr

    return seconds(start)


def until_login(network: Network, count: int) -> float:
    """From RunInstances until an ssh login was accepted by the last one."""
    started = time.monotonic()
    machines = network.launch(count, wait=False)

    def log_in(machine: str) -> None:
        wait_for(lambda: network.cloud.instance(machine).get("PublicIpAddress"), 60, "an address")
        wait_for(lambda: network.ssh(machine, "true").returncode == 0, 120, f"ssh to {machine}")

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(log_in, machines))
    return time.monotonic() - started


def memory_used_mib() -> float:
    """Without what the kernel can take back at once: caches of files."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return (int(fields["MemTotal"].split()[0]) - int(fields["MemAvailable"].split()[0])) / 1024


def end_all(cloud: Clients) -> None:
    alive = [i["InstanceId"] for i in cloud.instances() if i["State"]["Name"] != "terminated"]
    cloud.ec2.terminate_instances(InstanceIds=alive)
    wait_for(lambda: all(i["State"]["Name"] == "terminated" for i in cloud.instances()), 120, "all ended")


def thousand(network: Network) -> tuple[float, float]:
    """API-only instances: launched, and described in one go."""
    ec2 = network.cloud.ec2
    subnet = ec2.create_subnet(VpcId=network.vpc, CidrBlock="10.0.128.0/17")["Subnet"]["SubnetId"]
    request = {"ImageId": network.cloud.image("localcloud-api-only"), "InstanceType": "t3.micro", "SubnetId": subnet}
    launched = seconds(lambda: ec2.run_instances(MinCount=1000, MaxCount=1000, **request))
    instances: list[Any] = []
    described = seconds(lambda: instances.extend(network.cloud.instances(subnet_id=subnet)))
    assert len(instances) == 1000
    return launched, described


def main() -> None:
    assert localcloud("status").returncode == 2, "a local cloud is up: end it first, it would be measured too"
    before = memory_used_mib()
    rows = [Row("image build, warm package cache", image_build(), "s", 90)]
    up()
    localcloud("down")
    rows.append(Row("up with a built image", statistics.median(_up_and_down() for _ in range(3)), "s", 4))
    up()
    cloud = Clients(environment())
    key = Path(tempfile.mkdtemp()) / "key"
    command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    network = Network.create(cloud, key)
    rows.append(Row("RunInstances to ssh, 1 machine", until_login(network, 1), "s", 6))
    end_all(cloud)
    rows.append(Row("RunInstances to ssh, 16 machines", until_login(network, 16), "s", 25))
    rows.append(Row("down with 16 machines", seconds(lambda: localcloud("down")), "s", 5))
    up()
    network = Network.create(Clients(environment()), key)
    until_login(network, 24)
    rows.append(Row("memory of 24 machines, the service included", memory_used_mib() - before, "MiB", 4096))
    launched, described = thousand(network)
    rows.append(Row("1,000 API-only instances launched", launched, "s", None))
    rows.append(Row("1,000 API-only instances described", described, "s", 2))
    localcloud("down")
    write("localcloud", "The local cloud", rows)


def _up_and_down() -> float:
    took = up()
    localcloud("down")
    return took


if __name__ == "__main__":
    try:
        main()
    finally:
        localcloud("down")
