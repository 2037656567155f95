"""`python -m localcloud` is the command `localcloud`."""

import sys

from localcloud.cli import main

sys.exit(main())
