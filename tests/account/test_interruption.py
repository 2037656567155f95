"""Killed anywhere and run again: one of everything. Then destroyed, killed anywhere in that too: nothing is left.

Here it is a seeded sample of places; `make chaos` goes through all of them, and through kills at each task.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.account.census import CONSENT, KILLED, WHOLE, census, prepare
from tests.account.kit import CLOUD_HALF

SITE, DESTROY = 9, 11
"""After how many writing calls site.yml and destroy.yml are killed. AWS has carried out the last one, and the playbook
has not heard of it."""


def test_killed_and_run_again(account: Any) -> None:
    prepare(account)
    empty = census(account)

    ran = account.play(CLOUD_HALF, kill_at_write=SITE)
    assert ran.code == KILLED, ran.output[-4000:]
    ran = account.play(CLOUD_HALF)
    assert ran.code == 0, ran.output[-4000:]
    assert census(account) - empty == WHOLE

    ran = account.play("destroy.yml", kill_at_write=DESTROY, **CONSENT)
    assert ran.code == KILLED, ran.output[-4000:]
    ran = account.play("destroy.yml", **CONSENT)
    assert ran.code == 0, ran.output[-4000:]
    assert census(account) == empty
    ran = account.play("destroy.yml", **CONSENT)
    assert (ran.code, ran.changed) == (0, 0)


@pytest.mark.long
def test_a_half_made_cluster_goes(account: Any) -> None:
    prepare(account)
    empty = census(account)
    ran = account.play(CLOUD_HALF, kill_at_write=18)
    assert ran.code == KILLED, ran.output[-4000:]
    assert census(account) != empty
    ran = account.play("destroy.yml", **CONSENT)
    assert ran.code == 0, ran.output[-4000:]
    assert census(account) == empty
