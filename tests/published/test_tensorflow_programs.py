"""The TensorFlow programs of deeplearning-cfn's guide on booted machines: as published they end at their first use of
TensorFlow 1, and with the lines that docs/from-deeplearning-cfn.md changes they train and evaluate.
"""

from __future__ import annotations

import pytest

from localcloud.testing.booted import wait_for
from tests.integration.machines import Cluster
from tests.published.conftest import Sources
from tests.published.kit import MASTER, send
from tests.published.pages import tensorflow_changes
from tests.published.programs import (
    CIFAR10,
    CIFAR10_EVAL,
    CIFAR10_INPUT,
    CIFAR10_MODEL,
    CIFAR10_TRAIN,
    GENERATE_TRAINER,
)

pytestmark = pytest.mark.long

GUIDE = "/efs/deeplearning-cfn/examples/tensorflow"
EVALUATE = f"models/{CIFAR10}/cifar10_eval.py"
DATA = """
python3 /opt/deeplearning/trainers/generate.py $EFS_MOUNT/cifar10_data/cifar-10-batches-bin --train 500 --test 256
cd $EFS_MOUNT/cifar10_data && tar -cz -f cifar-10-binary.tar.gz cifar-10-batches-bin
"""
TRAIN = """
head -n 2 $DEEPLEARNING_WORKERS_PATH > two
mkdir scripts
python generate_trainer.py --workers_file_path $PWD/two --worker_count 2 --worker_gpu_count 1 \\
    --trainer_script_dir $PWD/scripts --log_dir $PWD/logs --training_script $PWD/cifar10_multi_machine_train.py \\
    --batch_size 16 --data_dir=$EFS_MOUNT/cifar10_data --train_dir=$PWD/train --max_steps 200000
while read -u 10 host; do ssh -o "StrictHostKeyChecking no" $host "bash $PWD/scripts/$host.sh" < /dev/null
done 10<two
"""
"""The guide's loop, on two of the three nodes: one parameter server and, as no node has a GPU, one worker on each."""
END = """
while read -u 10 host; do ssh -o "StrictHostKeyChecking no" $host "pkill -f python" < /dev/null; done 10<two
"""
"""The guide's own line, which the page names. It reaches the processes of the two machines, and no other."""
PROGRESS = "cat logs/ps*; grep -ho 'step 10,' logs/worker*; ls train"


def run(cluster: Cluster, line: str, timeout: float = 120) -> str:
    """Run a line in the guide's folder on the master. Return what it prints, with its errors."""
    done = cluster.ssh(MASTER, "bash -l", input=f"exec 2>&1\ncd {GUIDE}\n{line}", timeout=timeout)
    return done.stdout


@pytest.fixture(scope="module")
def guide(training_cluster: Cluster, sources: Sources) -> Cluster:
    """The cluster with TensorFlow as its `python`, and the guide's programs as published where it clones them."""
    for program in (GENERATE_TRAINER, CIFAR10_TRAIN, CIFAR10_MODEL, CIFAR10_INPUT, CIFAR10_EVAL):
        sources.file(program)
    configured = training_cluster.play("playbooks/configure.yml", cluster_default_framework="tensorflow")
    assert configured.code == 0, configured.output[-4000:]
    folder = sources.file(CIFAR10_TRAIN).parent
    send(training_cluster, folder, ["generate_trainer.py", "cifar10_multi_machine_train.py"], GUIDE)
    send(training_cluster, sources.snapshot(CIFAR10_MODEL.snapshot), [CIFAR10], f"{GUIDE}/models")
    return training_cluster


@pytest.mark.parametrize("program", ["cifar10_multi_machine_train.py", EVALUATE])
def test_as_published_they_end_at_the_first_use_of_tensorflow_1(guide: Cluster, program: str) -> None:
    printed = run(guide, f"python $PWD/{program}").splitlines()
    line = CIFAR10_MODEL.lines["FLAGS = tf.app.flags.FLAGS"]
    assert printed[-1] == "AttributeError: module 'tensorflow' has no attribute 'app'"
    assert any(f'cifar10.py", line {line}, in <module>' in text for text in printed), printed


def test_with_the_pages_lines_two_servers_and_two_workers_train_and_the_newest_checkpoint_is_evaluated(
    guide: Cluster,
) -> None:
    assert guide.ssh(MASTER, "bash -l", input=f"set -e\n{tensorflow_changes()}{DATA}").returncode == 0
    run(guide, TRAIN)

    def trains() -> bool:
        """Whether both workers have trained for ten steps, and a checkpoint of a minute's steps was written."""
        printed = run(guide, PROGRESS)
        saved = [word for word in printed.split() if word.startswith("model.ckpt-") and word.endswith(".index")]
        return printed.count("Started server") == 2 and printed.count("step 10,") == 2 and len(saved) > 1

    try:
        # A worker that is not the first looks only each 30 s whether the first has made the variables.
        wait_for(trains, 400, "two workers train")
    except AssertionError:
        pytest.fail(run(guide, "tail -n 20 logs/*"))
    finally:
        run(guide, END)
    options = "--data_dir $EFS_MOUNT/cifar10_data --checkpoint_dir $PWD/train --eval_dir $PWD/eval"
    printed = run(guide, f"python {EVALUATE} {options} --run_once --num_examples 256")
    assert "Restoring parameters from" in printed and "precision @ 1 = " in printed, printed[-3000:]
