"""An AWS account to run playbooks against: the local cloud's API in this process, with real time and no machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.loaders import Loader

from localcloud.api.autoscaling.regions import Regions
from localcloud.api.iam.identities import bootstrap
from localcloud.core.calls import CallLog, Record
from localcloud.core.clock import RealClock
from localcloud.core.cloud import Cloud
from localcloud.core.latency import latency_from
from localcloud.core.lateness import OBSERVER
from localcloud.endpoint.front import Front
from localcloud.endpoint.server import HttpServer
from tests.deprecations import SHOW_DEPRECATIONS, our_deprecations
from tests.forking import ForkingPython
from tests.processes import kill_marked

ROOT = Path(__file__).resolve().parents[2]
REGION = "us-east-1"
RUN_SECONDS = 600
LOCK = "lock.json"
"""The object that is a cluster's lock."""
RUN = "INTEGRATION_RUN"
"""In the environment of each process of a run: which one it belongs to."""
CLOUD_HALF = "playbooks/provision.yml"
"""site.yml up to where members are configured by ssh: the machines of this account do not boot."""
WHEELS = ROOT / "build/wheels"
"""What machines configure themselves by, downloaded once for all accounts."""

MODELS = Loader()
"""The models of AWS's services, which take most of a new session's time to read: read once for all."""

ROLE_PLAY = """\
- name: Play the role alone
  hosts: localhost
  gather_facts: false
  module_defaults:
    group/amazon.aws.aws: {region: us-east-1}
    group/community.aws.aws: {region: us-east-1}
    group/deeplearning.aws.aws: {region: us-east-1}
  tasks:
"""
"""The beginning of a play of one role alone: its tasks follow."""


def new_session(key: str, secret: str, region: str, token: str | None = None) -> boto3.Session:
    session = boto3.Session(key, secret, token, region_name=region)
    session._session.register_component("data_loader", MODELS)
    return session


class WatchedLog(CallLog):
    """A log that reports each call to a callback before the caller gets its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[Record], None] = lambda _record: None

    def add(self, record: Record) -> None:
        super().add(record)
        self.tell(record)


@dataclass
class Ran:
    """An ansible-playbook that has ended, or was killed."""

    code: int
    output: str
    tasks: list[str]
    started: list[float]
    """when each of the tasks began, seconds since the epoch"""

    @property
    def changed(self) -> int:
        """How many tasks have changed something, by the recap."""
        line = next(line for line in reversed(self.output.splitlines()) if "changed=" in line)
        return int(line.split("changed=")[1].split()[0])


@dataclass
class Playing:
    """An ansible-playbook that runs."""

    process: subprocess.Popen[str]
    run: str

    def lines(self) -> Iterator[str]:
        """What it prints, until it ends or is killed."""
        assert self.process.stdout is not None
        return iter(self.process.stdout)

    def interrupt(self) -> None:
        """What Ctrl-C in a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill all of its processes, Ansible's workers too, which are in sessions of their own."""
        kill_marked(f"{RUN}={self.run}")


@dataclass
class Account:
    cloud: Cloud
    endpoint: str
    folder: Path
    environment: dict[str, str]
    log: WatchedLog
    settings: dict[str, Any] = field(default_factory=dict)
    forking: ForkingPython | None = None
    """runs the modules of playbooks. None: they run as users run them; so do those that are killed"""

    def client(self, service: str, region: str = REGION) -> Any:
        """Plain boto3, to set up and to check independently: it never sees a delayed state."""
        config = Config(retries={"total_max_attempts": 10}, user_agent_appid=OBSERVER)
        key, secret = (self.environment[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
        return new_session(key, secret, region).client(service, endpoint_url=self.endpoint, config=config)

    def key(self, name: str = "key") -> Path:
        """Create a key pair in the folder, and return its private file."""
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "operator", "-f", path], check=True)
        return path

    def wants(self, cluster: str, **more: Any) -> None:
        """Settings for small machines that do not boot, and a key to log in with; and others, which win over them."""
        self.settings.update(
            cluster_name=cluster,
            cluster_instance_type="t3.medium",
            cluster_image="localcloud-api-only",
            cluster_login_user="ubuntu",
            cluster_root_volume_gib=100,
            cluster_ssh_allowed_cidrs=["198.51.100.1/32"],
            cluster_public_key_file=f"{self.key()}.pub",
        )
        self.settings.update(more)

    @contextmanager
    def playing(
        self,
        playbooks: str | Sequence[str],
        *arguments: str,
        seconds: float = RUN_SECONDS,
        forking: ForkingPython | None = None,
        **extra: Any,
    ) -> Iterator[Playing]:
        """Playbooks of this checkout while they run, as a person runs them (but for their modules, with a forking
        Python): killed after so many seconds, or at the end of this."""
        paths = [str(ROOT / playbook) for playbook in ([playbooks] if isinstance(playbooks, str) else playbooks)]
        program: list[str | Path] = [Path(sys.executable).parent / "ansible-playbook"]
        if forking:
            program = forking.ansible_playbook()
        command = [*program, *paths, *arguments]
        variables = {**self.settings, **extra}
        if variables:
            command += ["-e", json.dumps(variables)]
        run = uuid.uuid4().hex
        lateness = self.cloud.lateness
        # provision.yml repeats what failed because AWS was late; a play of a role alone does not.
        lateness.enabled = all(path.startswith(f"{ROOT}/") for path in paths)
        process = subprocess.Popen(
            # A shell in the background has its commands ignore SIGINT.
            ["env", "--default-signal=INT", *command],
            cwd=self.folder,
            env=self.environment | {RUN: run},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        playing = Playing(process, run)
        watchdog = threading.Timer(seconds, playing.kill)
        watchdog.start()
        try:
            yield playing
        finally:
            self.log.tell = lambda _record: None
            watchdog.cancel()
            playing.kill()
            process.wait()
            # The next one starts later than AWS is late.
            lateness.settle()
            lateness.enabled = True

    def play(
        self,
        playbooks: str | Sequence[str],
        *arguments: str,
        kill_at_task: int | None = None,
        kill_at_write: int | str | None = None,
        **extra: Any,
    ) -> Ran:
        """Run playbooks of this checkout as a person does; with `kill_at_…`, only until their n-th task begins, or
        until AWS has carried out the n-th writing call, or the first of this operation, and before its answer comes."""
        lines, tasks, started = [], [], []
        forking = self.forking if kill_at_task is None and kill_at_write is None else None
        with self.playing(playbooks, *arguments, forking=forking, **extra) as playing:
            if kill_at_write is not None:
                self._kill_at(playing, kill_at_write)
            for line in playing.lines():
                lines.append(line)
                if line.startswith("TASK ["):
                    tasks.append(line[6:].split("]")[0])
                    started.append(time.time())
                    if kill_at_task is not None and len(tasks) > kill_at_task:
                        playing.kill()
            output = "".join(lines)
            assert not our_deprecations(output), our_deprecations(output)
            return Ran(playing.process.wait(), output, tasks, started)

    def _kill_at(self, playing: Playing, place: int | str) -> None:
        left = [place if isinstance(place, int) else 1]

        def tell(record: Record) -> None:
            if not record.writes or not record.caller.endswith("user/operator"):
                return
            if isinstance(place, int) or record.operation == place:
                left[0] -= 1
                if left[0] <= 0:
                    playing.kill()

        self.log.tell = tell

    def writes(self, since: float) -> list[str]:
        """The writing calls of people, as service:Operation, without those that take, renew and release the lock."""
        written = []
        for call in self.cloud.calls.since(since):
            is_of_people = call["writes"] and call["caller"].endswith("user/operator")
            if is_of_people and not is_of_lock(call):
                written.append(f"{call['service']}:{call['operation']}")
        return written

    def role(self, name: str) -> str:
        """The ARN of a new role that everybody in the account may assume, and that may do everything."""
        iam = self.client("iam")
        trust = {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        created = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]
        iam.attach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
        return str(created["Arn"])

    def hold_machines(self) -> None:
        """Leave new machines to their launch hooks from now on: the test answers these."""
        self.cloud.clock.afterwards = lambda: None

    def as_user(self, key: str, secret: str) -> Account:
        """Return the same account for another user. What runs there runs as that user."""
        return replace(self, environment=self.environment | {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret})


def is_of_lock(call: Mapping[str, Any]) -> bool:
    """Return whether a call takes, renews, reads or releases the lock of a cluster."""
    return any(str(needed["resource"]).endswith(f"/{LOCK}") for needed in call["required"])


def answer_hooks(cloud: Cloud) -> None:
    """Let new machines enter service, as if they had configured themselves in no time."""
    for scaling in cloud.records("autoscaling", Regions).by_name.values():
        members = [member for group in scaling.groups.values() for member in group.members.values()]
        held = [action for member in members for action in member.actions if action.result is None]
        for action in held:
            action.complete("CONTINUE")
        if held:
            scaling.schedule_step()


@contextmanager
def account_in(folder: Path, latency: str = "none", forking: ForkingPython | None = None) -> Iterator[Account]:
    """A new one, with a user who may do everything. Its machines do not boot; see answer_hooks."""
    lock = threading.RLock()
    clock, log = RealClock(lock), WatchedLog()
    cloud = Cloud(clock, lock, latency_from(latency), log, strict=True)
    cloud._session._session.register_component("data_loader", MODELS)
    clock.afterwards = partial(answer_hooks, cloud)
    WHEELS.mkdir(parents=True, exist_ok=True)
    (folder / ".deeplearning").mkdir()
    (folder / ".deeplearning/wheels").symlink_to(WHEELS)
    server = HttpServer(Front(cloud), "127.0.0.1", 0)
    server.start()
    try:
        key, secret = bootstrap(cloud)
        endpoint = f"http://127.0.0.1:{server.port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ANSIBLE_"))}
        environment = kept | {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": "0",
            # Prints each task as it starts.
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_LOCAL_TEMP": str(folder / "ansible"),
            "NO_COLOR": "1",
            **SHOW_DEPRECATIONS,
        }
        yield Account(cloud, endpoint, folder, environment, log, forking=forking)
    finally:
        server.stop()
        clock.stop()
        cloud.close()
