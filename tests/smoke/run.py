#!/usr/bin/env python3
"""Try the collection on a real account for a small, stated amount: `make aws-smoke`. docs/first-hour-on-aws.md."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import botocore.client
from ansible.plugins.loader import init_plugin_loader

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    init_plugin_loader([str(ROOT / "collections")])

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws  # noqa: E402
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError  # noqa: E402

from tests.git import commit  # noqa: E402
from tests.smoke import options, record, recording  # noqa: E402
from tests.smoke.earlier import earlier_clusters  # noqa: E402
from tests.smoke.options import Options, Refused  # noqa: E402
from tests.smoke.session import PROGRAM, Cluster, Session  # noqa: E402
from tests.smoke.spending import Price, price_of, usd  # noqa: E402
from tests.smoke.stages import STAGES, Stage  # noqa: E402
from tests.steps import Failed, outcome_of  # noqa: E402

FOLDER = ROOT / "build/smoke"
INTERRUPTED = 130


class Interrupted(BaseException):
    """A signal has ended the stages."""


class Signals:
    """The first signal ends the stages; those that come while clusters are destroyed do not end that."""

    def __init__(self) -> None:
        self.is_ending = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.is_ending:
            print("what was created is being destroyed: wait for that", flush=True)
            return
        self.is_ending = True
        raise Interrupted(signal.Signals(number).name)

    @contextmanager
    def caught(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = [signal.signal(number, self) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


class Smoke:
    """One run of the command."""

    def __init__(self, chosen: Options, session: Session, signals: Signals, private: Collection[str]) -> None:
        self._options = chosen
        self._session = session
        self._signals = signals
        self._private = private
        self._problems: list[str] = []

    def run(self) -> int:
        try:
            try:
                if self._clear_up():
                    self._run_stages()
            except (UserError, Failed) as error:
                self._problem(str(error))
            self._signals.is_ending = True
        except Interrupted as interruption:
            self._problem(f"interrupted by {interruption}: what was created is destroyed")
        finally:
            self._end()
        return 1 if self._problems else 0

    def _clear_up(self) -> bool:
        """Name earlier clusters, and destroy those that have ended or are named. Return whether stages follow."""
        session, named = self._session, self._options.destroy
        session.begin("earlier")
        clusters = earlier_clusters(session.aws)
        for cluster in clusters:
            print(f"earlier cluster: {cluster.line(session.clock())}", flush=True)
        if named and named not in [cluster.name for cluster in clusters]:
            raise Failed(f"SMOKE_DESTROY is {named}, and no cluster of this command has that name")
        for cluster in clusters:
            if cluster.name == named or cluster.has_ended(session.clock()):
                session.clusters.append(Cluster(cluster.name, dict(session.settings)))
                session.destroy(session.clusters[-1])
                print(f"{cluster.name} is destroyed", flush=True)
        return not named

    def _run_stages(self) -> None:
        session, skipped = self._session, []
        for number in self._options.stages:
            stage = STAGES[number]
            price = price_of(session.aws, stage.need)
            if price is None:
                skipped.append(f"stage {number} was not run: AWS's price list does not answer with its prices")
            elif price.most and session.spent() + price.most > self._options.usd:
                left = usd(self._options.usd - session.spent())
                skipped.append(f"stage {number} was not run: it may cost {usd(price.most)}, and {left} are left")
            else:
                print(f"stage {number}, {stage.title}: may cost {usd(price.most)}", flush=True)
                self._run_stage(number, price)
                if self._problems:
                    break
        for line in skipped:
            print(line, flush=True)

    def _run_stage(self, number: int, price: Price) -> None:
        session = self._session
        session.begin(str(number))
        outcome = outcome_of(f"stage {number}", partial(attempt, STAGES[number], session, price), session.folder)
        recording.add(session.record, {"outcome": "ok" if outcome.ok else "failed", "seconds": outcome.seconds})
        print(outcome.line(), flush=True)
        if not outcome.ok:
            self._problems.append(outcome.detail)

    def _end(self) -> None:
        """Destroy what is left, finish the record, and print what was spent."""
        session = self._session
        for cluster in list(session.clusters):
            session.begin("end")
            print(f"destroying {cluster.name}", flush=True)
            try:
                session.destroy(cluster)
            except (UserError, Failed) as error:
                self._problem(f"{cluster.name} is not destroyed: {error}")
                print(
                    "its machines end by themselves within the hour; its network costs until the next start of this "
                    f"command, or: make aws-smoke SMOKE_DESTROY={cluster.name}",
                    flush=True,
                )
        dropped = record.finish(session.record, self._facts(), self._private)
        for entry in record.entries_of(session.record):
            if "item" in entry:
                print(f"{entry['item']}: {entry['outcome']}", flush=True)
        print(f"spent: at most {usd(session.spent())}, without what the file system and the bucket store", flush=True)
        lost = f" ({dropped} lines with names or secrets were left out)" if dropped else ""
        print(f"record: {session.record}{lost}", flush=True)

    def _facts(self) -> dict[str, object]:
        local = {"local_cloud": self._options.is_local}
        return {"run": self._session.stamp, "commit": commit(), "region": self._options.region, **local}

    def _problem(self, sentence: str) -> None:
        self._problems.append(sentence)
        print(" ".join(sentence.split()), flush=True)


def attempt(stage: Stage, session: Session, price: Price) -> str:
    try:
        return stage.run(session, price)
    except UserError as error:
        raise Failed(str(error)) from error


def check_account(chosen: Options, aws: Aws) -> list[str]:
    """Refuse another account than the named one. Return the words of the caller's name."""
    caller = aws.call("sts", "get_caller_identity")
    if caller["Account"] != chosen.account:
        raise Refused(
            f"SMOKE_ACCOUNT is {chosen.account}, and these credentials are of {caller['Account']}: nothing was created"
        )
    return [chosen.account, *str(caller["Arn"]).split(":")[-1].split("/")[1:]]


def check_budget(chosen: Options, aws: Aws) -> None:
    """Refuse a budget that the first stage with a price exceeds."""
    for number in chosen.stages:
        price = price_of(aws, STAGES[number].need)
        if price and price.most > chosen.usd:
            raise Refused(
                f"SMOKE_USD is {chosen.usd:g}, and stage {number} may cost {usd(price.most)}: give more, or choose "
                "stages with SMOKE_STAGES. Stage 0 costs nothing"
            )
        if price is None or price.most:
            return


def private_words(environment: Mapping[str, str]) -> list[str]:
    """Return what names the person and the machine: it is not in the record."""
    names = ("USER", "LOGNAME", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    return [*(environment.get(name, "") for name in names), platform.node()]


def settings_in(folder: Path, chosen: Options) -> dict[str, object]:
    """Return the settings of all clusters, with a new key to log in with."""
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "smoke", "-f", key], check=True)
    return {
        "cluster_region": chosen.region,
        "cluster_worker_count": 1,
        "cluster_ssh_allowed_cidrs": [chosen.cidr],
        "cluster_public_key_file": f"{key}.pub",
        "cluster_private_key_file": str(key),
    }


def main(
    environment: Mapping[str, str],
    program: Sequence[str | Path] = PROGRAM,
    clock: Callable[[], float] = time.time,
    folder: Path = FOLDER,
    **settings: object,
) -> int:
    """`settings`: further ones of all clusters."""
    signals = Signals()
    with signals.caught():
        try:
            chosen = options.read(environment)
            aws = Aws(chosen.region)
            caller = check_account(chosen, aws)
            check_budget(chosen, aws)
        except (Refused, UserError) as refusal:
            print(" ".join(str(refusal).split()), file=sys.stderr)
            return 2
        except Interrupted:
            return INTERRUPTED
        if chosen.is_local:
            print("local cloud: the three images are Debian under three names", flush=True)
        stamp = time.strftime("%m%d%H%M%S", time.gmtime(clock()))
        work = folder / stamp
        work.mkdir(parents=True)
        os.environ |= {
            recording.RECORD: str(folder / f"smoke-record-{stamp}.jsonl"),
            recording.NAMES: f"smoke-{stamp}",
        }
        recording.record_calls(botocore.client)
        session = Session(work, aws, environment, {**settings_in(work, chosen), **settings}, stamp, program, clock)
        return Smoke(chosen, session, signals, [*caller, *private_words(environment)]).run()


if __name__ == "__main__":
    sys.exit(main(dict(os.environ)))
