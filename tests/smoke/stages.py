"""The stages of the command. Each creates clusters, one after the other, looks at them, and destroys them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.smoke import probes, recording
from tests.smoke.facts import facts_of
from tests.smoke.policies import EMR, FAMILIES, SMALL, check_for_nothing
from tests.smoke.session import Cluster, Session
from tests.smoke.spending import Need, Price
from tests.steps import require

NETWORK = "tests/smoke/network.yml"
CLOUD_HALF = "playbooks/provision.yml"
"""site.yml and emr.yml up to where machines report that they have configured themselves: what can be seen of a network
that the operator has no way into."""
EMR_IDLE_MINUTES = 10
SHOWN_SECONDS = 120
"""AWS shows what was created within seconds."""
GPU, EFA = "g4dn.xlarge", "g4dn.8xlarge"
"""The cheapest types with a GPU, and with a GPU and EFA."""


@dataclass(frozen=True)
class Stage:
    title: str
    run: Callable[[Session, Price], str]
    """Takes what its clusters cost."""
    need: Need = Need()
    is_optional: bool = False
    logs_in: bool = False
    """Whether it needs a way from here to a machine."""


CHANGE = re.compile(r"^(?:changed: |  .*\d (?:created|changed) )", re.MULTILINE)
"""A line of the callback `short` about a task or a role that has changed something."""


def nothing(session: Session, _price: Price) -> str:
    return check_for_nothing(session)


def network(session: Session, price: Price) -> str:
    cluster = session.cluster("network", price, cluster_instance_type=SMALL)
    # What AWS does not show yet ends a module, and only provision.yml waits for it by itself.
    probes.play_until_it_passes(session, cluster, NETWORK, SHOWN_SECONDS)
    again = session.play(NETWORK, cluster.settings)
    require(not CHANGE.search(again), "a second run of the same settings changes something")
    probes.scheduled_action(session, cluster.name)
    probes.interface_of_mount_target(session, cluster.name)
    session.destroy(cluster)
    return "created, unchanged by a second run, and destroyed"


def images(session: Session, price: Price) -> str:
    for what, image in FAMILIES.items():
        cluster = create(session, what, price, "site.yml", cluster_image=image, cluster_idle_minutes=30)
        record_facts(session, cluster, what)
        if what == list(FAMILIES)[-1]:
            probes.kill(session, cluster, "workers")
            probes.kill(session, cluster, "master")
            probes.heal(session, cluster)
        session.destroy(cluster)
    return f"{len(FAMILIES)} images with a master and a worker; a killed worker and a killed master were replaced"


def private(session: Session, price: Price) -> str:
    cluster = create(session, "private", price, CLOUD_HALF, cluster_public=False)
    session.destroy(cluster)
    return "machines without public addresses have configured themselves"


def emr(session: Session, price: Price) -> str:
    settings: Mapping[str, Any] = {
        "cluster_instance_type": EMR,
        "cluster_emr_idle_minutes": EMR_IDLE_MINUTES,
        "cluster_ttl_hours": "never",
    }
    session.destroy(create(session, "emr", price, "emr.yml", **settings))
    session.destroy(create(session, "emrprivate", price, CLOUD_HALF, emr=True, cluster_public=False, **settings))
    return "EMR clusters in a public and in a private subnet were configured"


def gpus(session: Session, price: Price, kind: str = GPU, what: str = "gpu") -> str:
    cluster = create(session, what, price, "site.yml", cluster_instance_type=kind)
    record_facts(session, cluster, what)
    run = {"framework": "pytorch", "dataset": "generated", "script_args": ["--epochs", "2"]}
    session.play("train.yml", {**cluster.settings, **run})
    session.destroy(cluster)
    return f"two machines of {kind} have trained with PyTorch"


def efa(session: Session, price: Price) -> str:
    return gpus(session, price, EFA, "efa")


def create(session: Session, what: str, price: Price, playbook: str, **settings: Any) -> Cluster:
    usual = {"cluster_instance_type": SMALL, "cluster_max_hourly_cost": round(1.1 * price.hourly + 0.01, 2)}
    cluster = session.cluster(what, price, **{**usual, **settings})
    session.play(playbook, cluster.settings)
    return cluster


def record_facts(session: Session, cluster: Cluster, what: str) -> None:
    recording.add(session.record, {"image": what, "facts": facts_of(session, cluster.name)})


STAGES: Mapping[int, Stage] = {
    0: Stage("plan, and AWS's validation and simulation of policies", nothing),
    1: Stage("network, file system, bucket and roles", network, Need(clusters=1)),
    2: Stage("three images, killed machines", images, Need(SMALL, clusters=3), logs_in=True),
    3: Stage("private network", private, Need(SMALL, clusters=1, public=False)),
    4: Stage("EMR, public and private", emr, Need(EMR, clusters=2, emr=True, public=False), logs_in=True),
    5: Stage("GPUs", gpus, Need(GPU, clusters=1, framework=True), is_optional=True, logs_in=True),
    6: Stage("EFA", efa, Need(EFA, clusters=1, framework=True), is_optional=True, logs_in=True),
}
