"""Evaluation of IAM policies, without an account.

decide([parse_policy(document)], "s3:GetObject", "arn:aws:s3:::bucket/key", context_of({})).outcome == "allowed"
"""

from localcloud.iam.conditions import MalformedPolicy as MalformedPolicy
from localcloud.iam.patterns import context_of as context_of
from localcloud.iam.policy import Decision as Decision
from localcloud.iam.policy import Policy as Policy
from localcloud.iam.policy import decide as decide
from localcloud.iam.policy import parse_policy as parse_policy
