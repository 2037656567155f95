"""The old ways still work, by hand on the master: with the workers file and ssh, with the hostfile and mpirun, and with
what each framework reads. Each is a sum over a rank on every node, which only ranks that reach each other can tell.

Each rank prints its line in one write, newline included, as nothing separates the output of ranks.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.integration.machines import Cluster

MASTER = "deeplearning-master"
SUM = "the sum is 6"

# What people pasted: a loop on file descriptor 10, since ssh would read the rest of the list.
LOOP = """
    each() {
        i=0
        while read -u 10 host; do
            ssh -o "StrictHostKeyChecking no" $host "cd $PWD; $(line)" &
            i=$((i + 1))
        done 10<$DEEPLEARNING_WORKERS_PATH
    }
"""

WAYS = {
    # As MXNet's launch.py with its ssh tracker: the scheduler here, a server and a worker on each node.
    "mxnet": """
        cat > sum.py <<'END'
        import mxnet as mx
        store = mx.kv.create("dist_sync")
        value = mx.nd.zeros(1)
        store.init(0, value)
        store.push(0, mx.nd.ones(1) * (store.rank + 1))
        store.pull(0, out=value)
        print("the sum is %d\\n" % value.asscalar(), end="")
        END
        variables="export DMLC_NUM_WORKER=$DEEPLEARNING_WORKERS_COUNT DMLC_NUM_SERVER=$DEEPLEARNING_WORKERS_COUNT \\
            DMLC_PS_ROOT_URI=$(getent hosts deeplearning-master | cut -d' ' -f1) DMLC_PS_ROOT_PORT=9091"
        line() { echo "$variables DMLC_ROLE=$role; $(deeplearning env mxnet); python sum.py"; }
        role=scheduler; bash -c "$(line)" &
        role=server; each
        role=worker; each
        wait
        """,
    "mpirun": """
        cat > sum.py <<'END'
        import ctypes
        mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
        named = lambda name: ctypes.byref(ctypes.c_char.in_dll(mpi, name))
        mpi.MPI_Init(None, None)
        rank, value = ctypes.c_int(), ctypes.c_int()
        mpi.MPI_Comm_rank(named("ompi_mpi_comm_world"), ctypes.byref(rank))
        mine = ctypes.c_int(rank.value + 1)
        how = named("ompi_mpi_int"), named("ompi_mpi_op_sum"), named("ompi_mpi_comm_world")
        mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(value), 1, *how)
        print(f"the sum is {value.value}\\n", end="")
        mpi.MPI_Finalize()
        END
        mpirun --hostfile /opt/deeplearning/hostfile python3 $PWD/sum.py
        """,
    "tensorflow": """
        cat > sum.py <<'END'
        import json, os
        import tensorflow as tf
        rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        add = lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(rank + 1.0))
        print("the sum is %d\\n" % strategy.run(tf.function(add)), end="")
        END
        workers=$(sed 's/.*/"&:2222"/' $DEEPLEARNING_WORKERS_PATH | paste -sd,)
        line() {
            task="{\\"type\\": \\"worker\\", \\"index\\": $i}"
            config="{\\"cluster\\": {\\"worker\\": [$workers]}, \\"task\\": $task}"
            echo "export TF_CONFIG='$config'; $(deeplearning env tensorflow); python sum.py"
        }
        each
        wait
        """,
    "torchrun": """
        cat > sum.py <<'END'
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        value = torch.tensor(dist.get_rank() + 1)
        dist.all_reduce(value)
        print(f"the sum is {int(value)}\\n", end="")
        dist.destroy_process_group()
        END
        line() {
            echo "$(deeplearning env pytorch); torchrun --nnodes $DEEPLEARNING_WORKERS_COUNT --node-rank $i \\
                --master-addr deeplearning-master --master-port 29500 sum.py"
        }
        each
        wait
        """,
}


# In each `make test` test_old_scripts.py starts MXNet's and TensorFlow's processes over ssh.
LONG = ("mxnet", "tensorflow")


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.long] * (way in LONG)) for way in WAYS])
def test_an_old_way_by_hand_on_the_master_works(training_cluster: Cluster, way: str) -> None:
    here = f"mkdir -p $EFS_MOUNT/by-hand/{way} && cd $EFS_MOUNT/by-hand/{way}\n"
    script = here + textwrap.dedent(LOOP) + textwrap.dedent(WAYS[way])
    done = training_cluster.ssh(MASTER, "bash -l", input=script)
    sums = [line for line in done.stdout.splitlines() if line.startswith("the sum")]
    assert sums == [SUM] * 3, done.stdout[-3000:] + done.stderr[-3000:]
