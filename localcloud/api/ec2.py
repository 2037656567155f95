"""EC2: what the local cloud answers itself, by topic. Importing this registers all of it; the rest is moto's.

| file | what |
| --- | --- |
| ec2_moto | what is mended in moto itself |
| ec2_records | what is kept beside moto's records, and looking things up |
| ec2_filters | filters, pages, tags of a call |
| ec2_instance | one instance |
| ec2_template, ec2_launch | from a template and a request to instances |
| ec2_states | the life of an instance, and what machines report |
| ec2_describe | what is shown of instances |
| ec2_views | what machines, network and metadata service need |
| ec2_addresses, ec2_nat, ec2_placement, ec2_profiles, ec2_types | Elastic IPs, NAT gateways, placement groups … |
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

_TOPICS = ("addresses", "describe", "launch", "nat", "placement", "profiles", "types")

for _topic in _TOPICS:
    importlib.import_module(f"localcloud.api.ec2_{_topic}")
