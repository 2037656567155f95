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
from pathlib import Path
from typing import Any

from localcloud.testing import account
from localcloud.testing.clients import new_session, observer_config
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
    cloud: account.Account
    folder: Path
    environment: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)
    forking: ForkingPython | None = None
    """runs the modules of playbooks. None: they run as users run them; so do those that are killed"""

    @property
    def endpoint(self) -> str:
        return self.cloud.endpoint

    def client(self, service: str, region: str = REGION) -> Any:
        """Plain boto3, to set up and to check independently: it never sees a delayed state."""
        config = observer_config(retries={"total_max_attempts": 10})
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
        # provision.yml repeats what failed because AWS was late; a play of a role alone does not.
        self.cloud.strict = all(path.startswith(f"{ROOT}/") for path in paths)
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
            self.cloud.calls.tell = lambda _record: None
            watchdog.cancel()
            playing.kill()
            process.wait()
            # The next one starts later than AWS is late.
            self.cloud.settle()
            self.cloud.strict = True

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

        def tell(record: account.Record) -> None:
            if not record.writes or not record.caller.endswith("user/operator"):
                return
            if isinstance(place, int) or record.operation == place:
                left[0] -= 1
                if left[0] <= 0:
                    playing.kill()

        self.cloud.calls.tell = tell

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
        self.cloud.boot_instances(at_once=False)

    def as_user(self, key: str, secret: str) -> Account:
        """Return the same account for another user. What runs there runs as that user."""
        return replace(self, environment=self.environment | {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret})


def is_of_lock(call: Mapping[str, Any]) -> bool:
    """Return whether a call takes, renews, reads or releases the lock of a cluster."""
    return any(str(needed["resource"]).endswith(f"/{LOCK}") for needed in call["required"])


@contextmanager
def account_in(
    folder: Path,
    latency: str = "none",
    forking: ForkingPython | None = None,
    wrap: Callable[[Any], Any] = lambda application: application,
) -> Iterator[Account]:
    """Yield a new one, with a user who may do everything. Its machines do not boot, and enter service at once."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    (folder / ".deeplearning").mkdir()
    (folder / ".deeplearning/wheels").symlink_to(WHEELS)
    with account.Account(latency=latency, wrap=wrap) as cloud:
        cloud.boot_instances(at_once=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ANSIBLE_"))}
        environment = {
            **kept,
            **cloud.variables,
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
        yield Account(cloud, folder, environment, forking=forking)
