"""An evaluator of IAM policies, and the table of the permissions that each AWS call needs.

    needs = required("ec2", "RunInstances", params, world, "us-east-1")      # table.py, services/
    refused = authorize(policies, needs, caller, resource_policies={…})     # policy.py, authorize.py
    if refused:
        raise denied(Refusal("AccessDenied"), refused[0], caller.arn)       # errors.py

Pure functions on the standard library. Facts about the account come from a World (world.py).
"""

from __future__ import annotations

from .authorize import Denial, authorize, policy_arn
from .conditions import MalformedPolicy
from .errors import Refusal, denied, unknown
from .policy import Decision, Policy, parse_policy
from .rules import Need
from .table import TABLE, UnknownOperation, required
from .world import Lookup, World

__all__ = [
    "TABLE",
    "Decision",
    "Denial",
    "Lookup",
    "MalformedPolicy",
    "Need",
    "Policy",
    "Refusal",
    "UnknownOperation",
    "World",
    "authorize",
    "denied",
    "parse_policy",
    "policy_arn",
    "required",
    "unknown",
]
