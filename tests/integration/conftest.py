"""Booted machines, in the local cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.clusters import (
    background,
    cloud_with_machines,
    emr_cluster,
    emr_creation,
    image,
    kept_file_system,
    training_cluster,
)

__all__ = [
    "background",
    "cloud_with_machines",
    "emr_cluster",
    "emr_creation",
    "image",
    "kept_file_system",
    "training_cluster",
]

# The first files test machines that no other test has changed. The last ones replace machines of the cluster that all
# share and leave it a worker less. What these begin in the background is made while the others run.
FIRST = ("test_members", "test_boot")
LAST = ("test_training_recovery", "test_emr", "test_unkind_image", "test_kept_file_system")
BACKGROUND = ("emr_creation", "kept_file_system")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the files of this folder that depend on their turn. Tests of other folders keep their places."""
    turns = {name: turn for turn, name in enumerate((*FIRST, "", *LAST), -len(FIRST))}
    places = [place for place, item in enumerate(items) if item.path.parent == Path(__file__).parent]
    ordered = sorted((items[place] for place in places), key=lambda item: turns.get(item.path.stem, 0))
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


@pytest.fixture(scope="session", autouse=True)
def begin(request: pytest.FixtureRequest) -> None:
    """Begin what is made in the background with the session, if a test of the session uses it."""
    used = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    for name in BACKGROUND:
        if name in used:
            request.getfixturevalue(name)
