"""The environment is removed. Then another user creates one at its path, for the next play."""

from __future__ import annotations

from remote import output

assert output("ls /opt/deeplearning/env") == ""
output("sudo python3 -m venv --without-pip /opt/deeplearning/env/mxnet")
