"""Access keys and temporary credentials, and their callers."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from moto.backends import get_backend

from localcloud.core.caller import Caller
from localcloud.core.clock import Clock
from localcloud.core.errors import AwsError
from localcloud.core.settings import ACCOUNT
from localcloud.core.words import aws_error


@dataclass
class Session:
    """Temporary credentials of a role."""

    access_key: str
    secret: str
    token: str
    role: str
    name: str
    issued: float
    expires: float
    tags: Mapping[str, str] = field(default_factory=dict)
    """session tags, which AssumeRole was called with"""

    @property
    def expiration(self) -> str:
        return datetime.fromtimestamp(self.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Credentials:
    """Sessions of roles are kept here; users and their keys are in moto's IAM."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self.default_seconds = 3600
        """How long a session lasts whose caller asks for no time."""

    def issue(self, role: str, name: str, seconds: float, tags: Mapping[str, str] | None = None) -> Session:
        """New temporary credentials for a role, in a session of that name."""
        now = self._clock.time()
        self._sessions = {key: old for key, old in self._sessions.items() if old.expires > now - 3600}
        session = Session(
            access_key="ASIA" + "".join(secrets.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(16)),
            secret=secrets.token_urlsafe(30),
            token=secrets.token_urlsafe(200),
            role=role,
            name=name,
            issued=now,
            expires=now + seconds,
            tags=dict(tags or {}),
        )
        self._sessions[session.access_key] = session
        return session

    def for_instance(self, role: str, name: str, seconds: float) -> Session:
        """Return the newest credentials of an instance, which stay the same until shortly before they expire."""
        now = self._clock.time()
        held = [session for session in self._sessions.values() if (session.role, session.name) == (role, name)]
        newest = max(held, key=lambda session: session.issued, default=None)
        if newest is not None and (
            newest.expires - now > seconds / 6 or newest.expires <= now < newest.issued + seconds
        ):
            return newest
        return self.issue(role, name, seconds)

    def expire(self, name: str) -> int:
        """Expire all sessions with a name (of an instance, its id) or of a role, and return their number."""
        now = self._clock.time()
        matches = [
            session
            for session in self._sessions.values()
            if name in (session.name, session.role) and session.expires > now
        ]
        for session in matches:
            session.expires = now
        return len(matches)

    def renew(self, name: str) -> None:
        """Forget expired credentials, so that new ones are issued."""
        now = self._clock.time()
        kept = {
            key: held
            for key, held in self._sessions.items()
            if name not in (held.name, held.role) or held.expires > now
        }
        self._sessions = kept

    def resolve(self, access_key: str, token: str | None) -> tuple[Caller, str]:
        """Return the caller of an access key, and the key's secret."""
        session = self._sessions.get(access_key)
        if session is not None:
            if not hmac.compare_digest(token or "", session.token):
                raise AwsError("InvalidToken", "The security token included in the request is invalid.", 403)
            if session.expires <= self._clock.time():
                raise aws_error("sts:*", "ExpiredToken")
            return _role_caller(session), session.secret
        for user in get_backend("iam")[ACCOUNT]["aws"].users.values():
            for key in user.access_keys:
                if key.access_key_id == access_key:
                    if key.status != "Active":
                        break
                    tags = get_backend("iam")[ACCOUNT]["aws"].tagger.get_tag_dict_for_resource(user.arn)
                    return Caller.user(user.arn, user.id, tags), key.secret_access_key
        raise aws_error("sts:*", "InvalidClientTokenId")


def _role_caller(session: Session) -> Caller:
    backend = get_backend("iam")[ACCOUNT]["aws"]
    role = next((role for role in backend.roles.values() if role.name == session.role), None)
    if role is None:
        raise aws_error("sts:*", "InvalidClientTokenId")
    return caller_in_role(role, session.name, session.tags)


def caller_in_role(role: Any, session_name: str, session_tags: Mapping[str, str] | None = None) -> Caller:
    """Return the caller for a session of a role, which is moto's record."""
    role_tags = {tag["Key"]: tag["Value"] for tag in role.tags or []}
    return Caller.session(role.arn, role.id, session_name, _principal_tags(role_tags, session_tags or {}))


def _principal_tags(role_tags: Mapping[str, str], session_tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a session: its own override the role's, and IAM ignores the case of keys.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/id_session-tags.html
    """
    overridden = {key.lower() for key in session_tags}
    kept = {key: value for key, value in role_tags.items() if key.lower() not in overridden}
    return {**kept, **session_tags}
