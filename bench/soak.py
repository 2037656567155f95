"""The soak: a training whose machines are killed, frozen and cut at random, without a login or a playbook."""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from report import Row, write  # noqa: E402

from localcloud.testing import booted  # noqa: E402
from tests.integration.clusters import FRAMEWORKS, IMAGE_WITH_FRAMEWORKS  # noqa: E402
from tests.integration.healing import BATCH, TRAIN, ClusterView, file_of, start_training  # noqa: E402
from tests.integration.machines import Cluster, cloud_in, localcloud  # noqa: E402
from tests.integration.runs import Runs  # noqa: E402

FAULTS = {"kill": "", "frozen": "thaw", "cut": "mend"}
"""What ends each of them."""
BETWEEN_SECONDS = 90
HEALED_SECONDS = 420
CHECKPOINT_STEPS = 20
ENDLESS = 10**7
ACCURACY = 0.8
LINES = {
    "/opt/deeplearning/workers": re.compile(r"(deeplearning-worker\d+\n)+"),
    "/opt/deeplearning/hostfile": re.compile(r"(deeplearning-worker\d+ slots=\d+\n)+"),
    "/opt/deeplearning/addresses": re.compile(r"([0-9.]+\n)+"),
    "/etc/hosts": re.compile(r"[^\0]*localhost[^\0]*# BEGIN deeplearning[^\0]*# END deeplearning\n[^\0]*"),
}
"""The whole text of a member's files."""


@dataclass
class Fault:
    """A row of the table."""

    second: float
    kind: str
    node: str
    lasted: float
    """seconds; of a kill none"""
    still: float = 0.0
    """the longest time without a step until the next fault"""


@dataclass
class Watch:
    """Reads what members and the run write, several times a second, and keeps what is wrong."""

    view: ClusterView
    run_id: str
    wrong: list[str] = field(default_factory=list)
    reads: int = 0
    lost_steps: list[int] = field(default_factory=list)
    """of each time that the training was resumed"""
    generations: list[int] = field(default_factory=list)
    ranks: dict[str, int] = field(default_factory=dict)
    """by instance id"""
    progressed: float = field(default_factory=time.monotonic)
    """when the last step was seen"""
    still: float = 0.0
    """the longest time without a step since it was reset"""
    _metrics: int = 0
    _epochs: float = 0.0
    """how many the training has come to"""
    _per_epoch: int = 1

    def look(self) -> None:
        for check in (self._list, self._files, self._steps):
            try:
                check()
            except (ValueError, KeyError, TypeError) as error:
                self._report(f"{check.__name__}: {error!r}")

    def _report(self, text: str) -> None:
        if text not in self.wrong:
            say(text)
            self.wrong.append(text)

    def _list(self) -> None:
        published = self.view.published()
        members = published["members"]
        self.reads += 1
        if not members or not published["signature"] or len({member["rank"] for member in members}) != len(members):
            self._report(f"the member list is torn: {published}")
        if self.generations and published["generation"] < self.generations[-1]:
            self._report(f"generation {published['generation']} follows {self.generations[-1]}")
        if published["generation"] not in self.generations[-1:]:
            self.generations.append(published["generation"])
        for listed in members:
            if self.ranks.setdefault(listed["instance_id"], listed["rank"]) != listed["rank"]:
                self._report(
                    f"{listed['instance_id']} had rank {self.ranks[listed['instance_id']]} and has {listed['rank']}"
                )

    def _files(self) -> None:
        for instance, pid in self.view.machines().items():
            for path, whole in LINES.items():
                try:
                    text = file_of(pid, path).read_text()
                    if path == "/etc/hosts" and not file_of(pid, "/opt/deeplearning/workers").exists():
                        continue
                except OSError:
                    # It is no member yet, or it ends.
                    continue
                self.reads += 1
                if not whole.fullmatch(text):
                    self._report(f"{path} of {instance} is torn: {text!r}")

    def _steps(self) -> None:
        """Follow the metrics of rank 0: each attempt makes a file of its own out of its predecessor's."""
        self.still = max(self.still, time.monotonic() - self.progressed)
        try:
            with open(self.view.run_file(self.run_id, "metrics/rank0.jsonl"), "rb") as file:
                inode, text = os.fstat(file.fileno()).st_ino, file.read()
        except OSError:
            return
        # More than an epoch has, and the last one may be half written.
        lines = [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()[-TRAIN // BATCH :]]
        if not lines or lines[-1]["val_accuracy"] is not None:
            return
        if inode != self._metrics:
            # Lines of the epoch that is repeated have been removed, so its first one is the new attempt's.
            first = next(line["step"] for line in lines if line["epoch"] == lines[-1]["epoch"]) - 1
            self._per_epoch = TRAIN // len(self.view.run_record(self.run_id, "state.json")["processes"]) // BATCH
            if self._metrics:
                self.lost_steps.append(max(0, round(self._epochs * self._per_epoch - first)))
                say(f"resumed after step {first}, {self.lost_steps[-1]} steps lost")
            self._metrics, self._epochs = inode, 0.0
        epochs = lines[-1]["step"] / self._per_epoch
        if epochs > self._epochs:
            self._epochs, self.progressed = epochs, time.monotonic()

    def has_begun(self) -> bool:
        return self._epochs > 0

    def last_step(self) -> int:
        return round(self._epochs * self._per_epoch)

    def follow(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.2)  # between two looks at the files

    def follow_until(self, done: Callable[[], bool], what: str) -> None:
        """Give up after HEALED_SECONDS."""
        end = time.monotonic() + HEALED_SECONDS
        while not done():
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {HEALED_SECONDS} s")
            self.follow(1)


class Soak:
    """Faults on one cluster, each at a machine and of a kind that the seed chooses."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.random = cluster, random.Random(seed)
        runs = Runs(cluster)
        steps = ("--checkpoint-steps", str(CHECKPOINT_STEPS), "--log-steps", "1")
        self.run_id = start_training(runs, "--max-steps", str(ENDLESS), *steps, max_restarts=1000)
        self.view = ClusterView(cluster)
        self.watch = Watch(self.view, self.run_id)
        self.faults: list[Fault] = []
        self.result: dict[str, Any] = {}

    def run(self, minutes: float) -> None:
        self.watch.follow_until(self.watch.has_begun, "the first steps")
        # The operator's identity calls nothing from here on.
        begun, begun_at = time.monotonic(), time.time()
        while time.monotonic() - begun < minutes * 60:
            self.strike(time.monotonic() - begun)
        self.watch.follow_until(self.is_well, "the cluster is complete and the training makes steps")
        for call in booted.calls(since=begun_at):
            if call["caller"].endswith(":user/operator"):
                self.watch.wrong.append(f"the operator's machine has called {call['action']}")
        self.finish()

    def strike(self, second: float) -> None:
        """Let a fault happen, and wait for the time of the next."""
        next_one = time.monotonic() + BETWEEN_SECONDS
        names = {id_: name for name, id_ in self.view.instances().items()}
        instance = self.random.choice(sorted(self.view.machines(), key=lambda id_: names.get(id_, f"~{id_}")))
        kind = self.random.choice(sorted(FAULTS))
        lasts = self.random.uniform(10, BETWEEN_SECONDS - 10)
        self.faults.append(Fault(second, kind, names.get(instance, "no member yet"), lasts if FAULTS[kind] else 0))
        say(f"{kind} {instance} ({self.faults[-1].node}) for {self.faults[-1].lasted:.0f} s")
        self.watch.still = 0.0
        booted.add_fault(kind, {"instance": instance})
        if kind in FAULTS and FAULTS[kind]:
            self.watch.follow(lasts)
            # Auto Scaling may have replaced it meanwhile.
            localcloud("fault", FAULTS[kind], instance)
        self.watch.follow(next_one - time.monotonic())
        self.faults[-1].still = self.watch.still

    def is_well(self) -> bool:
        return self.view.is_complete() and time.monotonic() - self.watch.progressed < 5

    def describe(self) -> None:
        """Print what is needed to find the cause of a failure."""
        for words in (
            ("status",),
            ("exec", self.view.instances()["deeplearning-worker1"], "--", "journalctl", "-n", "80"),
        ):
            say(localcloud(*words).stdout[-8000:])
        say(json.dumps(self.view.run_record(self.run_id, "state.json")))
        say("\n".join(self.view.run_file(self.run_id, "events.jsonl").read_text().splitlines()[-30:]))

    def finish(self) -> None:
        """Log in, end the training after two more epochs, and compare its accuracy."""
        described = self.cluster.play("status.yml")
        if described.code:
            raise AssertionError(described.output[-3000:])
        runs = Runs(self.cluster)
        stopped = runs.ask("stop", self.run_id)
        last = self.watch.last_step() + 2 * TRAIN // BATCH
        steps = ["--batch-size", str(BATCH), "--max-steps", str(last)]
        resumed = runs.ask("create", stdin=json.dumps({"resume": self.run_id, "script_args": steps}))
        started = runs.ask("start", self.run_id)
        for done in (stopped, resumed, started):
            if done.returncode:
                raise AssertionError(done.stderr)
        runs.wait(self.run_id)
        self.result = self.view.run_record(self.run_id, "result.json")

    def rows(self, minutes: float) -> list[Row]:
        final = self.result.get("final", {})
        wrong = final.get("val_accuracy", 0) < ACCURACY or self.result.get("state") != "finished"
        return [
            Row("minutes of faults", minutes, "", None),
            Row("faults", len(self.faults), "", None),
            Row("times that the training was resumed", len(self.watch.lost_steps), "", None),
            Row("steps lost at a time, at most", max(self.watch.lost_steps, default=0), "", CHECKPOINT_STEPS),
            Row("longest time without a step", max((fault.still for fault in self.faults), default=0), "s", None),
            Row("accuracy at the end", final.get("val_accuracy", 0), "", None),
            Row(f"ends other than finished with at least {ACCURACY}", int(wrong), "", 0),
            Row("member lists and files read", self.watch.reads, "", None),
            Row("torn files, changed ranks, calls of the operator", len(self.watch.wrong), "", 0),
        ]

    def table(self) -> list[str]:
        lines = ["| at | fault | member | lasted | longest time without a step |", "| --- | --- | --- | --- | --- |"]
        for fault in self.faults:
            lasted = f"{fault.lasted:.0f} s" if fault.lasted else "-"
            lines.append(f"| {fault.second:.0f} s | {fault.kind} | {fault.node} | {lasted} | {fault.still:.0f} s |")
        return lines


def measure_soak(title: str, part: str, minutes: float, seed: int) -> bool:
    """Return whether every check passed."""
    problem, soak = "", None
    with tempfile.TemporaryDirectory() as folder, cloud_in(Path(folder)) as cloud:
        built = localcloud("image", "build", "--with", FRAMEWORKS, timeout=1500)
        if built.returncode:
            raise RuntimeError(built.stderr)
        with cloud.cluster("soak", worker_count=2, image=cloud.image(IMAGE_WITH_FRAMEWORKS)) as cluster:
            created = cluster.play("site.yml")
            if created.code:
                raise RuntimeError(created.output[-6000:])
            soak = Soak(cluster, seed)
            try:
                soak.run(minutes)
            except AssertionError as error:
                problem = f"It ended before its end: {error}"
                say(problem)
                soak.describe()
    rows = [*soak.rows(minutes), Row("soaks that ended before their end", bool(problem), "", 0)]
    more = ["", f"Seed {seed}. A cluster is a master and two workers. There was no playbook and no login.", ""]
    write("chaos", title, rows, "\n".join([*more, *soak.table(), "", *soak.watch.wrong, problem]).rstrip(), part)
    return all(row.target is None or row.value <= row.target for row in rows)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
