"""Scripts of our own with the interface of the old systems' programs. tests/old_programs.py has the line of each option
in the published program; each script here prints one sum over the ranks of all nodes, which is 6.
"""

from __future__ import annotations

import re
import textwrap

from localcloud.testing import facts

# generate_trainer.py and cifar10_multi_machine_train.py: a script for each node with a parameter server and a worker,
# which stay in the background. Of the three nodes two take part, so there are two servers, and each has a sum.
GENERATE = r"""
    cat > trainer.py <<'END'
    import argparse, time
    import tensorflow.compat.v1 as tf
    tf.disable_eager_execution()
    parser = argparse.ArgumentParser()
    for name in ("--ps_hosts", "--worker_hosts", "--job_name", "--data_dir", "--train_dir"):
        parser.add_argument(name)
    for name in ("--task_index", "--max_steps", "--batch_size"):
        parser.add_argument(name, type=int)
    flags = parser.parse_args()
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
    worker = "/job:worker/task:%d" % flags.task_index
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        sums = [tf.get_variable("sum%d" % n, (), tf.int64, tf.zeros_initializer()) for n in range(2)]
        assert {total.device for total in sums} == {"/job:ps/task:0", "/job:ps/task:1"}, sums
        with tf.control_dependencies([total.assign_add(flags.task_index + 1) for total in sums]):
            train = step.assign_add(1)
        taken = step.read_value()
        with tf.control_dependencies([taken]):
            totals = [total.read_value() for total in sums]
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=flags.task_index == 0, checkpoint_dir=flags.train_dir
    ) as session:
        session.run(train)
        steps, result = 0, []
        while steps < flags.max_steps:
            time.sleep(0.1)
            steps, result = session.run([taken, totals])
    print("the sum is %d" % sum(result), flush=True)
    END
    cat > generate_trainer.py <<'END'
    import argparse, os
    parser = argparse.ArgumentParser()
    for name in ("--trainer_script_dir", "--log_dir", "--workers_file_path"):
        parser.add_argument(name)
    for name in ("--worker_count", "--worker_gpu_count"):
        parser.add_argument(name, type=int)
    parser.add_argument("--training_script", nargs="+")
    own, others = parser.parse_known_args()
    os.makedirs(own.log_dir, exist_ok=True)
    hosts = [line.strip() for line in open(own.workers_file_path)]
    assert len(hosts) == own.worker_count, hosts
    workers = ",".join("%s:%d" % (host, 2230 + gpu) for host in hosts for gpu in range(own.worker_gpu_count))
    servers = ",".join(host + ":2222" for host in hosts)
    def command(gpu, job, task):
        words = [*own.training_script, *others, "--ps_hosts=" + servers, "--worker_hosts=" + workers]
        words += ["--job_name=" + job, "--task_index=%d" % task]
        log = "%s/%s%d" % (own.log_dir, job, task)
        return "CUDA_VISIBLE_DEVICES='%s' python %s > %s 2>&1 &\n" % (gpu, " ".join(words), log)
    for number, host in enumerate(hosts):
        with open("%s/%s.sh" % (own.trainer_script_dir, host), "w") as script:
            script.write("source /etc/profile\n" + command("", "ps", number))
            for gpu in range(own.worker_gpu_count):
                script.write(command(gpu, "worker", number * own.worker_gpu_count + gpu))
    END
    rm -rf logs train
    head -n 2 $DEEPLEARNING_WORKERS_PATH > two
    python generate_trainer.py --workers_file_path $PWD/two --worker_count 2 --worker_gpu_count 1 \
        --trainer_script_dir $PWD --log_dir $PWD/logs --training_script $PWD/trainer.py --batch_size 128 \
        --data_dir=$EFS_MOUNT/cifar10_data --train_dir=$PWD/train --max_steps 2
    while read -u 10 host; do
        ssh -o "StrictHostKeyChecking no" $host "bash $PWD/$host.sh" < /dev/null
    done 10<two
    for try in $(seq 600); do
        grep -h "the sum is" logs/worker0 && break
        sleep 0.2
    done
    grep -q "the sum is" logs/worker0 || tail -n 20 logs/*
    # Parameter servers never end by themselves.
    while read -u 10 host; do
        ssh -o "StrictHostKeyChecking no" $host "pkill -f python" < /dev/null
    done 10<two
    """

# run.sh: eight processes on each node by a host file of its own, with all flags, and with mpirun by conda's path. Open
# MPI takes that path for its own on every node, so orted has to be there too.
CONDA = "$HOME/anaconda3/envs/tensorflow_p36/bin"
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
    rm -f hostfile
    for i in $(seq 1 $DEEPLEARNING_WORKERS_COUNT); do
        ssh -oStrictHostKeyChecking=no deeplearning-worker$i \
            'mkdir -p CONDA && ln -sf $(which mpirun orted) CONDA' < /dev/null
        echo "deeplearning-worker$i slots=8" >> ./hostfile
    done
    MPIRUN=CONDA/mpirun
    HOROVOD_CYCLE_TIME=0.5 HOROVOD_FUSION_THRESHOLD=67108864 \
    $MPIRUN -np $((DEEPLEARNING_WORKERS_COUNT * 8)) --hostfile ./hostfile \
        --mca plm_rsh_no_tree_spawn 1 -bind-to none -map-by slot -mca pml ob1 -mca btl ^openib \
        -mca btl_tcp_if_exclude lo,docker0 -mca oob_tcp_if_exclude lo,docker0 \
        -mca btl_vader_single_copy_mechanism none \
        -x NCCL_SOCKET_IFNAME=^docker0,lo -x NCCL_MIN_NRINGS=8 -x NCCL_DEBUG=INFO \
        -x LD_LIBRARY_PATH -x PATH -x HOROVOD_CYCLE_TIME -x HOROVOD_FUSION_THRESHOLD \
        --output-filename $PWD/logs python3 $PWD/sum.py
    """.replace("CONDA", CONDA)

# cluster-health-check.sh: each node touches a file of its name on the shared file system, and the master counts them.
HEALTH = r"""
    rm -f $EFS_MOUNT/*-health.check
    for i in $(seq 1 $DEEPLEARNING_WORKERS_COUNT); do
        ssh -oStrictHostKeyChecking=no deeplearning-worker$i "touch /efs/deeplearning-worker$i-health.check" &
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

# launch.py with train_cifar10.py: DMLC_* processes from a host file over ssh, as MXNet's tracker starts them. MXNet 1.9
# binds to DMLC_NODE_HOST, so the hosts are addresses. The scheduler waits for ever for a process that has failed.
LAUNCH = r"""
    cat > train_cifar10.py <<'END'
    import argparse
    import mxnet as mx
    parser = argparse.ArgumentParser()
    for name in ("--network", "--kv-store", "--gpus", "--model-prefix"):
        parser.add_argument(name)
    for name in ("--num-layers", "--num-epochs", "--batch-size"):
        parser.add_argument(name, type=int)
    flags = parser.parse_args()
    assert (flags.network, flags.num_layers, flags.gpus) == ("resnet", 8, None), flags
    store = mx.kvstore.create(flags.kv_store)
    store.init(0, mx.nd.zeros(1))
    total = mx.nd.zeros(1)
    for epoch in range(flags.num_epochs):
        store.push(0, mx.nd.full(1, store.rank + 1))
        store.pull(0, out=total)
        total.wait_to_read()
    if store.rank == 0:
        mx.nd.save("%s-%04d.params" % (flags.model_prefix, flags.num_epochs), [total])
        print("the sum is %d" % total.asscalar())
    END
    cat > launch.py <<'END'
    import argparse, os, subprocess
    parser = argparse.ArgumentParser()
    parser.add_argument('-n', '--num-workers', type=int, required=True)
    parser.add_argument('-s', '--num-servers', type=int)
    parser.add_argument('-H', '--hostfile')
    parser.add_argument('--launcher', default='ssh', choices=['ssh'])
    parser.add_argument('command', nargs='+')
    flags, others = parser.parse_known_args()
    command = " ".join([*flags.command, *others])
    hosts = [line.strip() for line in open(flags.hostfile)]
    count = {"server": flags.num_servers or flags.num_workers, "worker": flags.num_workers}
    shared = {"DMLC_NUM_WORKER": count["worker"], "DMLC_NUM_SERVER": count["server"]}
    shared.update({"DMLC_PS_ROOT_URI": hosts[0], "DMLC_PS_ROOT_PORT": 9091})
    def start(role, *ssh, **own):
        exports = "".join("export %s=%s; " % pair for pair in dict(shared, DMLC_ROLE=role, **own).items())
        line = "%scd %s; %s" % (exports, os.getcwd(), command)
        return subprocess.Popen([*ssh, line] if ssh else ["sh", "-c", line], stdin=subprocess.DEVNULL)
    scheduler = start("scheduler")
    started = [
        start(role, "ssh", "-o", "StrictHostKeyChecking=no", host, DMLC_NODE_HOST=host, DMLC_TASK_ID=task)
        for role, number in count.items() for task in range(number) for host in [hosts[task % len(hosts)]]
    ]
    if any([process.wait() for process in started[count["server"]:]]):
        scheduler.kill()
    END
    python launch.py -n $DEEPLEARNING_WORKERS_COUNT -s 2 -H /opt/deeplearning/addresses --launcher ssh \
        /opt/deeplearning/env/mxnet/bin/python $PWD/train_cifar10.py --network resnet --num-layers 8 \
        --kv-store dist_sync --num-epochs 1 --batch-size 128 --model-prefix $PWD/model-output
    ls model-output-0001.params > /dev/null
    """

if facts.SUITE == "trixie":
    # Its Open MPI 5 has no orted, and 5.0.7 loses the output of --output-filename.
    RUN = RUN.replace(f"MPIRUN={CONDA}/mpirun", "MPIRUN=mpirun").replace(
        "--output-filename $PWD/logs", "--output dir=$PWD/logs"
    )

SCRIPTS = {"generate_trainer": GENERATE, "run.sh": RUN, "launch.py": LAUNCH, "health": HEALTH}

# With the interface of the old script, and not its text: sourced on the primary node, it asks YARN for the nodes.
METADATA = """
export DEEPLEARNING_WORKERS_PATH=/home/hadoop/worker_ip_file
nodes=$(yarn node -list 2> /dev/null | grep RUNNING | cut -d: -f1)
{ for node in $nodes; do nslookup $node | awk '/^Address: / {print $2}'; done; hostname -I | cut -d' ' -f1; } |
    sort -n -t. -k1,1 -k2,2 -k3,3 -k4,4 > $DEEPLEARNING_WORKERS_PATH
export DEEPLEARNING_WORKERS_COUNT=$(wc -l < $DEEPLEARNING_WORKERS_PATH)
export DEEPLEARNING_WORKER_GPU_COUNT=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU')
while read -u 10 host; do
    ssh -o "StrictHostKeyChecking no" $host "whoami; cat $DEEPLEARNING_WORKERS_PATH"
done 10<$DEEPLEARNING_WORKERS_PATH
echo $DEEPLEARNING_WORKERS_COUNT workers with $DEEPLEARNING_WORKER_GPU_COUNT GPUs
"""

# As the old bootstrap action: <file system> <region>.
MOUNT = """#!/bin/bash
set -e
[ $# = 2 ] || exit 1
sudo mkdir -p /efs
for attempt in 1 2 3 4 5 6; do
    sudo mount -t nfs4 -o nfsvers=4.1,hard,timeo=600,retrans=2,noresvport $1.efs.$2.amazonaws.com:/ /efs && break
    sleep 5
done
grep -q "^$1" /proc/mounts
sudo touch /efs/mounted-by-$(hostname)
"""

EMR_SCRIPTS = {"metadata_setup.sh": METADATA, "emr_efs_bootstrap.sh": MOUNT}


def own_program(script: str, name: str) -> str:
    """Return a program that a script writes before it runs it."""
    (program,) = re.findall(rf"cat > {re.escape(name)} <<'END'\n(.*?)\n +END\n", script, re.DOTALL)
    return textwrap.dedent(program)
