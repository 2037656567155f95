#!/bin/sh
# Starts a command of mpirun on a node: agent.sh RUN ATTEMPT OPTION… -- HOST COMMAND…
# mpirun's daemon runs there in a unit of the run's name, so everything that the run starts on that node ends with the unit.
# The options are systemd-run's. The unit's name is none of them: mpirun takes its colon for the end of this command.
unit=deeplearning-run-$1:$2.service options=
shift 2
while [ "$1" != -- ]; do
    options="$options $1"
    shift
done
host=$2
shift 2
command=$(printf '%s' "$*" | sed "s/'/'\\\\''/g")
exec ssh -o BatchMode=yes -o ConnectTimeout=5 "$host" \
    "exec sudo -n systemd-run --unit=$unit$options /bin/sh -c '$command'"
