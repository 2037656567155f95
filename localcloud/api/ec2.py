"""EC2: what the local cloud answers itself, by topic. Importing this registers all of it; the rest is moto's.

| ec2_… | what |
| --- | --- |
| moto | what is mended in moto itself |
| records | what is kept beside moto's records, and looking things up |
| filters, xml | filters, pages, tags of a call; answers as XML |
| instance | one instance |
| template, templates | what a launch says in all; launch templates |
| request, interfaces, room, launch | RunInstances: checked, placed, counted, made |
| states | the life of an instance, and what machines report |
| describe, attributes | what is shown of instances |
| networks | what is shown of network interfaces |
| views | what machines, network and metadata service need |
| tags, groups, guards | tags, security groups, what cannot be deleted and why |
| refusals | mistakes in a network that moto accepts |
| addresses, nat, placement, profiles, types | Elastic IPs, NAT gateways, placement groups … |
"""

from __future__ import annotations

import importlib

from localcloud.api.ec2_states import machine_exited, machine_started, on_change
from localcloud.api.ec2_views import find_instance, instance_view, instance_views, state_since, vpc_views

__all__ = [
    "find_instance",
    "instance_view",
    "instance_views",
    "machine_exited",
    "machine_started",
    "on_change",
    "state_since",
    "vpc_views",
]

_TOPICS = (
    "addresses",
    "attributes",
    "describe",
    "groups",
    "guards",
    "launch",
    "nat",
    "networks",
    "placement",
    "profiles",
    "refusals",
    "tags",
    "templates",
    "types",
)

for _topic in _TOPICS:
    importlib.import_module(f"localcloud.api.ec2_{_topic}")
