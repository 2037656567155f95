"""boto3 clients for tests: nothing is late for them, and they read AWS's service models once."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.loaders import Loader

from localcloud.core.lateness import OBSERVER as OBSERVER
from localcloud.core.settings import DEFAULT_REGION

MODELS = Loader()
"""The models of AWS's services, which take most of a new session's time to read."""


def observer_config(**options: Any) -> Config:
    """Return the configuration of a client that sets things up or looks at the result: nothing is late for it in a
    strict cloud. The options are passed to botocore's `Config`."""
    return Config(user_agent_appid=OBSERVER, **options)


def new_session(key: str, secret: str, region: str = DEFAULT_REGION, token: str | None = None) -> boto3.Session:
    """Return a session with credentials, which shares the models with all others."""
    session = boto3.Session(key, secret, token, region_name=region)
    session._session.register_component("data_loader", MODELS)
    return session
