"""Requests and answers compared with the models of AWS's services in botocore.

A local cloud with `LOCALCLOUD_FORMS=FILE` in its environment appends a line of JSON to the file for each form of a
request or an answer: its `call`, `side`, `origin`, `members`, and the `problems` that the model does not allow.
"""

from localcloud.models import ORIGINS as ORIGINS
from localcloud.models import VARIABLE as VARIABLE
from localcloud.models import Origin as Origin
from localcloud.models import origins_variable as origins_variable
