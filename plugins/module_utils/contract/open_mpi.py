# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Where Open MPI is on a node. Horovod is built against the first one, and runs are started with it."""

from __future__ import annotations

SYSTEM_FOLDER = "/usr/bin"
AMAZON_FOLDERS = ("/opt/amazon/openmpi/bin", "/opt/amazon/openmpi5/bin")
"""Of AWS's images with EFA: Open MPI 4 and 5, of which a newer image may have only the second."""
FOLDERS = (*AMAZON_FOLDERS, "/usr/lib64/openmpi/bin", "/usr/local/bin", SYSTEM_FOLDER)
"""In the order of preference: Amazon's, Amazon Linux's, a local build, Debian's and Ubuntu's."""
HWLOC_COMPONENTS = "-gl"
"""For Open MPI's daemons: by default hwloc probes X displays one by one, which takes five seconds."""
