"""Clusters of booted machines in the local cloud, made and configured by the playbooks; and what is seen of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcloud.testing import booted
from localcloud.testing.booted import command
from localcloud.testing.clients import new_session, observer_config
from localcloud.testing.facts import IMAGE_NAME
from tests.account.kit import REGION, ROOT
from tests.deprecations import SHOW_DEPRECATIONS, our_deprecations
from tests.forking import ForkingPython

BIN = Path(sys.executable).parent
PROGRAM: list[str | Path] = [BIN / "ansible-playbook"]
RUN_SECONDS = 600

Done = subprocess.CompletedProcess[str]


def localcloud(*words: str, timeout: float = 300) -> Done:
    return booted.localcloud(*words, timeout=timeout, cwd=ROOT)


@dataclass
class Played:
    code: int
    output: str

    @property
    def changed(self) -> int:
        """How many tasks have changed something, on all hosts together, by the recap."""
        _before, title, recap = self.output.rpartition("PLAY RECAP")
        assert title, self.output[-2000:]
        return sum(int(line.split("changed=")[1].split()[0]) for line in recap.splitlines() if "changed=" in line)


@dataclass
class Cloud:
    """The local cloud, and a folder that playbooks are run in."""

    folder: Path
    variables: dict[str, str]
    """what `localcloud env` sets"""
    forking: ForkingPython | None = None
    """runs the modules of playbooks on localhost. None: they run as users run them"""

    def client(self, service: str) -> Any:
        """Plain boto3, for which nothing is late."""
        variables = self.variables
        session = new_session(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"], REGION)
        config = observer_config(retries={"total_max_attempts": 5})
        return session.client(service, endpoint_url=variables["AWS_ENDPOINT_URL"], config=config)

    def image(self, name: str = IMAGE_NAME) -> str:
        """Its id, or nothing if no image of this name was built."""
        images = self.client("ec2").describe_images(Filters=[{"Name": "name", "Values": [name]}])["Images"]
        return str(images[0]["ImageId"]) if images else ""

    @contextmanager
    def cluster(self, name: str, **settings: Any) -> Iterator[Cluster]:
        """One that is yet to be made, by its `play("site.yml")`. Its machines end with it; records stay."""
        made = Cluster(self, name, {f"cluster_{key}": value for key, value in settings.items()})
        try:
            yield made
        finally:
            made.end()


@dataclass
class Cluster:
    cloud: Cloud
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    site: str = ""
    """what the site.yml that has created it printed"""
    root: Path = ROOT
    """the checkout whose playbooks are played"""

    def play(self, *words: str, **extra: Any) -> Played:
        """A playbook, as a person runs it."""
        forking = self.cloud.forking
        program = forking.ansible_playbook() if forking else PROGRAM
        return self.run(*program, *self._arguments(words, extra))

    @contextmanager
    def playing(self, *words: str, **extra: Any) -> Iterator[subprocess.Popen[str]]:
        """A playbook, while it runs. It does not outlive this."""
        with subprocess.Popen(
            [*PROGRAM, *self._arguments(words, extra)],
            cwd=self.cloud.folder,
            # It prints each task.
            env=self._environment() | {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as playing:
            try:
                yield playing
            finally:
                playing.terminate()

    def _arguments(self, words: Sequence[str], extra: dict[str, Any]) -> list[str | Path]:
        path = [self.root / words[0], *words[1:]]
        return [*path, "-e", f"@{ROOT}/files/demo.yml", "-e", json.dumps(self._extra | extra)]

    def ask(self, host: str, module: str, **arguments: Any) -> Played:
        """A module, run on one of the machines."""
        words = [BIN / "ansible", host, "-m", module, "-a", json.dumps(arguments), "-b"]
        return self.run(*words, "-e", json.dumps(self._extra))

    def run(self, *words: str | Path) -> Played:
        done = subprocess.run(
            words,
            cwd=self.cloud.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        assert not our_deprecations(done.stdout), our_deprecations(done.stdout)
        return Played(done.returncode, done.stdout)

    @property
    def _extra(self) -> dict[str, Any]:
        key = self.cloud.folder / "key"
        own = {"cluster_name": self.name, "cluster_public_key_file": f"{key}.pub", "cluster_private_key_file": str(key)}
        return own | self.settings

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ANSIBLE_"))}
        return (
            kept
            | self.cloud.variables
            | {
                # Into a pipe Ansible writes when a buffer is full.
                "PYTHONUNBUFFERED": "1",
                "AWS_CONFIG_FILE": os.devnull,
                "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                "ANSIBLE_CONFIG": str(self.root / "ansible.cfg"),
                "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests/integration/recap"),
                "ANSIBLE_INVENTORY": str(self.root / "inventory/aws.deeplearning.yml"),
                "ANSIBLE_FORCE_COLOR": "0",
                "NO_COLOR": "1",
                **SHOW_DEPRECATIONS,
            }
        )

    def ssh_words(self, host: str, *options: str) -> list[str]:
        config = self.cloud.folder / ".deeplearning" / f"{self.name}.ssh_config"
        return ["ssh", "-F", str(config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", *options, host]

    def ssh(self, host: str, line: str, *options: str, **more: Any) -> Done:
        return command(*self.ssh_words(host, *options), line, **more)

    def says(self, host: str, line: str, *options: str) -> str:
        """What a command prints that has to succeed."""
        done = self.ssh(host, line, *options)
        assert done.returncode == 0, f"{line} on {host}: {done.returncode} {done.stdout} {done.stderr}"
        return done.stdout.strip()

    def members(self, host: str = "deeplearning-master") -> dict[str, Any]:
        """The list that a node goes by."""
        members: dict[str, Any] = json.loads(self.says(host, "sudo deeplearning members show --json"))
        return members

    def machines(self) -> dict[str, dict[str, Any]]:
        """Those that live, by instance id, as AWS tells of them."""
        values = {"tag:deeplearning:cluster": self.name, "instance-state-name": "running"}
        filters = [{"Name": name, "Values": [value]} for name, value in values.items()]
        reservations = self.cloud.client("ec2").describe_instances(Filters=filters)["Reservations"]
        instances = [instance for reservation in reservations for instance in reservation["Instances"]]
        return {instance["InstanceId"]: instance for instance in instances}

    def in_service(self, group: str) -> list[str]:
        """Of `master` or `workers`."""
        return [
            instance["InstanceId"] for instance in self._instances(group) if instance["LifecycleState"] == "InService"
        ]

    def used(self) -> set[str]:
        """Return the names of the nodes that the master has tagged with a run."""
        tags = [{tag["Key"]: tag["Value"] for tag in machine["Tags"]} for machine in self.machines().values()]
        return {f"deeplearning-worker{tag['deeplearning:rank']}" for tag in tags if tag.get("deeplearning:run")}

    def _instances(self, group: str) -> list[dict[str, Any]]:
        groups = self.cloud.client("autoscaling").describe_auto_scaling_groups(
            AutoScalingGroupNames=[f"{self.name}-{group}"]
        )["AutoScalingGroups"]
        return [dict(instance) for group in groups for instance in group["Instances"]]

    def end(self) -> None:
        emr = self.cloud.client("emr")
        living = ["STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING"]
        flows = [
            flow["Id"] for flow in emr.list_clusters(ClusterStates=living)["Clusters"] if flow["Name"] == self.name
        ]
        if flows:
            emr.terminate_job_flows(JobFlowIds=flows)
        scaling = self.cloud.client("autoscaling")
        for group in scaling.describe_auto_scaling_groups()["AutoScalingGroups"]:
            if group["AutoScalingGroupName"] in (f"{self.name}-master", f"{self.name}-workers"):
                scaling.delete_auto_scaling_group(AutoScalingGroupName=group["AutoScalingGroupName"], ForceDelete=True)
        left = list(self.machines())
        if left:
            self.cloud.client("ec2").terminate_instances(InstanceIds=left)


@contextmanager
def cloud_in(folder: Path) -> Iterator[Cloud]:
    """The local cloud that is up, which stays up; or one that ends with this."""
    with booted.running() as clients:
        # Clusters of several tests exist at a time.
        booted.raise_quotas()
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "operator", "-f", folder / "key")
        yield Cloud(folder, clients.variables)
