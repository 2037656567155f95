"""Whether a policy's Principal element names a caller.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_principal.html
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ..core.caller import Caller


class Named(IntEnum):
    """How a policy names the caller. One that names only the account leaves the decision to the caller's policies."""

    NOT = 0
    ACCOUNT = 1
    DIRECTLY = 2


@dataclass(frozen=True)
class Principals:
    """A Principal (or NotPrincipal) element."""

    everyone: bool = False
    aws: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    federated: tuple[str, ...] = ()
    inverted: bool = False

    def names(self, caller: Caller) -> Named:
        named = self._names(caller)
        if self.inverted:
            return Named.DIRECTLY if named is Named.NOT else Named.NOT
        return named

    def _names(self, caller: Caller) -> Named:
        if self.everyone:
            return Named.DIRECTLY
        if caller.kind == "service":
            return Named.DIRECTLY if caller.name in self.services else Named.NOT
        names = {caller.arn, caller.role_arn, caller.userid, caller.userid.partition(":")[0]} - {""}
        if names & {*self.aws, *self.federated}:
            return Named.DIRECTLY
        accounts = {name.split(":")[4] if name.endswith(":root") else name for name in self.aws}
        return Named.ACCOUNT if caller.account in accounts else Named.NOT
