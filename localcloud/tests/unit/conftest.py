"""An EC2 to ask, and machines that only write down what they were told."""

from __future__ import annotations

import pytest

from localcloud.clock import ManualClock
from localcloud.cloud import Cloud
from localcloud.tests.unit.ec2_kit import Ec2, Recorder


@pytest.fixture
def machines(cloud: Cloud) -> Recorder:
    cloud.machines = Recorder()
    return cloud.machines


@pytest.fixture
def ec2(cloud: Cloud, clock: ManualClock, machines: Recorder) -> Ec2:
    return Ec2(cloud, clock)
