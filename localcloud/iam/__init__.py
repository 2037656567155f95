"""Who may do what: an evaluator of IAM policies, and the table of what each AWS call needs.

    needs = required("ec2", "RunInstances", params, world, "us-east-1")      # table.py, services/
    refused = authorize(policies, needs, caller, resource_policies={…})     # policy.py, authorize.py
    if refused:
        raise denied(Refusal("AccessDenied"), refused[0], caller.arn)                         # errors.py

Pure functions on the standard library; what they have to know of the account they ask a World (world.py).
"""

from __future__ import annotations

from .authorize import Denial, authorize, policy_arn
from .conditions import MalformedPolicy
from .errors import Refusal, denied, unknown
from .policy import Decision, Policy, parse_policy
from .principal import Caller
from .rules import Need
from .table import TABLE, UnknownOperation, required
from .world import Lookup, World

__all__ = [
    "TABLE",
    "Caller",
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
