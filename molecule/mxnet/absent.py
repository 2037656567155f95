"""Nothing is left of it. Then somebody else makes an environment there, for the next try."""

from __future__ import annotations

from seen import says

assert says("ls /opt/deeplearning/env") == ""
says("sudo python3 -m venv --without-pip /opt/deeplearning/env/mxnet")
