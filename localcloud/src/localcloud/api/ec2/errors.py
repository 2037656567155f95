"""The refusals that EC2 words alike."""

from __future__ import annotations

from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error


def invalid(message: str) -> AwsError:
    return AwsError("InvalidParameterValue", message)


def conflicting(message: str) -> AwsError:
    return AwsError("InvalidParameterCombination", message)


def missing(parameter: str) -> AwsError:
    return AwsError("MissingParameter", f"The request must contain the parameter {parameter}")


def has_dependencies(what: str) -> AwsError:
    return aws_error("ec2:DeleteVpc", "DependencyViolation", what=what)
