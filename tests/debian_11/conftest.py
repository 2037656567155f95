"""Booted machines, in a local cloud with LOCALCLOUD_SUITE=bullseye."""

from __future__ import annotations

from tests.integration.clusters import cloud_with_machines

__all__ = ["cloud_with_machines"]
