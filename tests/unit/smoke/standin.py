"""The command with stand-ins for AWS and playbooks, as a process: `standin.py FOLDER`.

A playbook of a stage writes `playing`, and waits until it is ended or the file `go` exists. destroy.yml waits until
`slow` does not exist.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from ansible.plugins.loader import init_plugin_loader  # noqa: E402

init_plugin_loader([str(ROOT / "collections")])

from tests.smoke import run, session, spending, stages  # noqa: E402

PLAYBOOK = """\
#!/bin/sh
echo "${1##*/}" >> played
case "$1" in
*destroy.yml)
    touch destroying
    while [ -e slow ]; do sleep 0.05; done
    [ ! -e refused ] || { echo "msg: 'ExpiredToken: the credentials have expired'"; exit 2; }
    touch destroyed;;
*audit.yml) ;;
*)  trap 'exit 130' INT
    [ ! -e stubborn ] || trap '' INT
    touch playing
    while [ ! -e go ]; do sleep 0.05; done
    [ ! -e failing ] || { echo "msg: 'no room in the zone'"; exit 2; };;
esac
"""


class FakeAws:
    """An account whose caller is a user, and where a cluster exists until it is destroyed."""

    def __init__(self, region: str) -> None:
        self.region, self.account = region, "123456789012"

    def call(self, _service: str, _operation: str, **_params: Any) -> dict[str, Any]:
        return {"Account": self.account, "Arn": f"arn:aws:iam::{self.account}:user/carol"}


def wait(at: session.Session, price: spending.Price) -> str:
    cluster = at.cluster("net", price)
    at.play("site.yml", cluster.settings)
    at.destroy(cluster)
    return "created and destroyed"


def leftovers(self: session.Session, name: str) -> list[str]:
    return [] if (self.folder / "destroyed").exists() else [f"1 VPC of {name}"]


def stand_in(work: Path) -> None:
    program = work / "ansible-playbook"
    program.write_text(PLAYBOOK)
    program.chmod(0o755)
    price = spending.Price(0.4, 0.1, 0.5)
    replaced: dict[str, Any] = {"Aws": FakeAws, "earlier_clusters": lambda _aws: [], "price_of": lambda *_words: price}
    vars(run).update(replaced)
    session.Session.leftovers = leftovers  # type: ignore[method-assign]
    own = stages.Stage("a stage that waits", wait, spending.Need(clusters=1))
    stages.STAGES.clear()  # type: ignore[attr-defined]
    stages.STAGES.update({0: own, 1: own})  # type: ignore[attr-defined]


if __name__ == "__main__":
    work = Path(sys.argv[1])
    stand_in(work)
    session.GRACE_SECONDS = 1.0
    sys.exit(run.main(dict(os.environ), program=[work / "ansible-playbook"], folder=work / "smoke"))
