"""Scripts with the interface of the old systems run unchanged, by hand on the master: they read the workers file and
its variables, log in to each node, and find `python` on it, or `python3` by `mpirun -x PATH`. These scripts are the
test's; the old ones did the same.
"""

from __future__ import annotations

import textwrap

import pytest

from localcloud.core import settings
from tests.integration.machines import Cluster

MASTER = "deeplearning-master"

# Writes `<host>.sh` for each node and runs them all, as the generator of trainers did.
GENERATE = r"""
    cat > trainer.py <<'END'
    import argparse, os, sys, time
    import tensorflow as tf
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker_hosts")
    parser.add_argument("--job_name")
    parser.add_argument("--task_index", type=int)
    flags = parser.parse_args()
    cluster = tf.train.ClusterSpec({"worker": flags.worker_hosts.split(",")})
    server = tf.distribute.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.task_index == 0:
        with tf.Graph().as_default(), tf.compat.v1.Session(server.target) as session:
            terms = []
            for task in range(cluster.num_tasks("worker")):
                with tf.device(f"/job:worker/task:{task}"):
                    terms.append(tf.random.uniform([], task + 1, task + 2, tf.int32))
            total = session.run(tf.add_n(terms))
        print(f"the sum is {total}\n", end="")
        open("done", "w").close()
    while not os.path.exists("done"):
        os.listdir(".")
        time.sleep(0.2)
    # TensorFlow's server never ends by itself.
    sys.stdout.flush()
    os._exit(0)
    END
    cat > generate.py <<'END'
    import os, sys
    hosts = [line.strip() for line in open(os.environ["DEEPLEARNING_WORKERS_PATH"])]
    addresses = ",".join(host + ":2230" for host in hosts)
    for index, host in enumerate(hosts):
        with open(host + ".sh", "w") as script:
            script.write("cd %s\npython %s/trainer.py --worker_hosts=%s --job_name=worker --task_index=%d\n"
                         % (os.getcwd(), os.getcwd(), addresses, index))
    END
    rm -f done
    python generate.py
    while read -u 10 host; do
        ssh -o "StrictHostKeyChecking no" $host "bash $PWD/$host.sh" 2> $host.log &
    done 10<$DEEPLEARNING_WORKERS_PATH
    wait
    """

# Eight processes on each node by a host file of its own, and all flags of the old run.sh.
RUN = r"""
    cat > sum.py <<'END'
    import ctypes, sys
    assert sys.prefix == "/opt/deeplearning/env/tensorflow", sys.prefix
    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    named = lambda name: ctypes.byref(ctypes.c_char.in_dll(mpi, name))
    mpi.MPI_Init(None, None)
    rank, total = ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Comm_rank(named("ompi_mpi_comm_world"), ctypes.byref(rank))
    how = named("ompi_mpi_int"), named("ompi_mpi_op_sum"), named("ompi_mpi_comm_world")
    mpi.MPI_Allreduce(ctypes.byref(ctypes.c_int(1)), ctypes.byref(total), 1, *how)
    if rank.value == 0:
        print(f"the sum is {total.value // 4}\n", end="")
    mpi.MPI_Finalize()
    END
    rm -f hosts
    for i in $(seq 1 $DEEPLEARNING_WORKERS_COUNT); do echo "deeplearning-worker$i slots=8" >> hosts; done
    mpirun -np $((DEEPLEARNING_WORKERS_COUNT * 8)) --hostfile hosts --mca plm_rsh_no_tree_spawn 1 \
        --bind-to none --map-by slot --mca pml ob1 --mca btl ^openib --mca btl_tcp_if_exclude lo,docker0 \
        --mca btl_vader_single_copy_mechanism none --mca oob_tcp_if_exclude lo,docker0 \
        -x LD_LIBRARY_PATH -x PATH -x HOROVOD_CYCLE_TIME=0.5 --output-filename $PWD/logs \
        python3 $PWD/sum.py
    """

# Each node touches a file of its name on the shared file system, and the master counts them.
HEALTH = r"""
    rm -f $EFS_MOUNT/*-health.check
    for i in $(seq 1 $DEEPLEARNING_WORKERS_COUNT); do
        ssh deeplearning-worker$i "touch \$EFS_MOUNT/deeplearning-worker$i-health.check" &
    done
    wait
    # Names that another machine has made are seen within seconds.
    for try in $(seq 50); do
        [ $(ls $EFS_MOUNT | grep -c -- '-health.check$') = $DEEPLEARNING_WORKERS_COUNT ] && break
        sleep 0.2
    done
    ls $EFS_MOUNT | sed -nE 's/^deeplearning-worker([0-9]+)-health.check$/\1/p' |
        awk '{ n += $1 } END { print "the sum is", n }'
    """

# Starts DMLC_* processes from a host file over ssh, as MXNet's tracker does. MXNet 1.9 binds to DMLC_NODE_HOST, so the
# hosts are addresses. The scheduler waits for ever for a process that has failed.
TRACKER = r"""
    cat > sum.py <<'END'
    import mxnet as mx
    store = mx.kvstore.create("dist_sync")
    store.init(0, mx.nd.zeros(1))
    store.push(0, mx.nd.full(1, store.rank + 1))
    total = mx.nd.zeros(1)
    store.pull(0, out=total)
    total.wait_to_read()
    if store.rank == 0:
        print("the sum is %d" % total.asscalar())
    END
    cat > tracker.py <<'END'
    import os, subprocess, sys
    host_file, command = sys.argv[1], " ".join(sys.argv[2:])
    hosts = [line.strip() for line in open(host_file)]
    shared = {"DMLC_NUM_WORKER": len(hosts), "DMLC_NUM_SERVER": len(hosts)}
    shared.update({"DMLC_PS_ROOT_URI": hosts[0], "DMLC_PS_ROOT_PORT": 9091})
    def start(role, *ssh, **own):
        exports = "".join("export %s=%s; " % pair for pair in dict(shared, DMLC_ROLE=role, **own).items())
        line = "%scd %s; %s" % (exports, os.getcwd(), command)
        return subprocess.Popen([*ssh, line] if ssh else ["sh", "-c", line], stdin=subprocess.DEVNULL)
    scheduler = start("scheduler")
    started = [
        start(role, "ssh", "-o", "StrictHostKeyChecking=no", host, DMLC_NODE_HOST=host, DMLC_TASK_ID=task)
        for role in ("server", "worker") for task, host in enumerate(hosts)
    ]
    if any([process.wait() for process in started[len(hosts):]]):
        scheduler.kill()
    END
    python tracker.py /opt/deeplearning/addresses /opt/deeplearning/env/mxnet/bin/python $PWD/sum.py
    """

if settings.SUITE == "trixie":
    # Its Open MPI 5.0.7 loses the output of --output-filename.
    RUN = RUN.replace("--output-filename $PWD/logs", "--output dir=$PWD/logs")

SCRIPTS = {"generate_trainer": GENERATE, "run.sh": RUN, "tracker": TRACKER, "health": HEALTH}


@pytest.fixture(scope="module")
def with_python(training_cluster: Cluster) -> Cluster:
    """Old scripts find `python` on the path with a default framework. It stays until the next configure.yml."""
    configured = training_cluster.play("playbooks/configure.yml", cluster_default_framework="tensorflow")
    assert configured.code == 0, configured.output[-4000:]
    return training_cluster


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.stand_in("the old scripts: the test's own with their interface")
def test_a_script_with_an_old_interface_runs_unchanged(with_python: Cluster, script: str) -> None:
    folder = f"mkdir -p $EFS_MOUNT/old/{script} && cd $EFS_MOUNT/old/{script}\n"
    done = with_python.ssh(MASTER, "bash -l", input=folder + textwrap.dedent(SCRIPTS[script]))
    sums = [line for line in done.stdout.splitlines() if line.startswith("the sum")]
    assert sums == ["the sum is 6"], done.stdout[-3000:] + done.stderr[-3000:]
