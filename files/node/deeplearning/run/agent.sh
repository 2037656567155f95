#!/bin/sh
# mpirun's way to a node: agent.sh RUN START USER HOST COMMAND…
# Its daemon there lives in a unit of the run's name, so whatever the run started on that node ends with the unit.
unit=deeplearning-run-$1:$2.service user=$3 host=$4
shift 4
command=$(printf '%s' "$*" | sed "s/'/'\\\\''/g")
exec ssh -o BatchMode=yes -o ConnectTimeout=5 "$host" "exec sudo -n systemd-run --quiet --unit=$unit --uid=$user \
--collect --pipe --wait -p KillMode=mixed -p TimeoutStopSec=4 -p OOMPolicy=continue -p LimitNOFILE=65536 \
-p LimitMEMLOCK=infinity -p TasksMax=infinity --setenv=HWLOC_COMPONENTS=-gl /bin/sh -c '$command'"
