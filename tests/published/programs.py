"""Facts about the published programs whose users this collection serves: where each stands, its SHA-256, and the line
of each option or habit that the programs of tests/integration/old_scripts.py share with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VARIABLE = "PUBLISHED_SOURCES"
"""In the environment: the folder of snapshots."""


@dataclass(frozen=True)
class Snapshot:
    """A public repository at a commit."""

    repository: str
    """At GitHub."""
    commit: str

    @property
    def folder(self) -> str:
        return self.repository.rpartition("/")[2]


@dataclass(frozen=True)
class Program:
    snapshot: Snapshot
    path: str
    sha256: str
    lines: Mapping[str, int] = field(default_factory=dict)
    """What the tests' own program has of it, by its line."""


DEEPLEARNING_CFN = Snapshot("awslabs/deeplearning-cfn", "163e215c7f0fc32a588b332cfa467dede938d46d")
MODELS = Snapshot("tensorflow/models", "3be9ece9574d7bac07704e43705741d9af1de1e6")
"""The submodule of deeplearning-cfn, examples/tensorflow/models."""
MASK_RCNN_SCRIPTS = Snapshot("armandmcqueen/tf-tp-hvd-dlami", "e3f4cd44bd25dac9ad9cf0679fc546007c16c53a")
"""The stack with TensorPack and Horovod, of which only this fork was found."""
DEEPLEARNING_EMR = Snapshot("awslabs/deeplearning-emr", "8227f79a466422fca32b68294ece6f99caf6a4fa")
MXNET = Snapshot("apache/mxnet", "3f8f3be9987e259491ddc5a78aa9c6903e0b21e3")
"""1.9.1"""
DMLC_CORE = Snapshot("dmlc/dmlc-core", "5c0dc04c48bedf5e1fef572d00abb5070e0d3a7f")
"""The first commit whose tracker runs on Python 3.9 and later. That of MXNet 1.9.1, in its wheel too, does not."""
TENSORPACK = Snapshot("tensorpack/tensorpack", "1547a54e8546494614ca31c984a1bfd1d0e24b77")
AWSOME = Snapshot("awslabs/awsome-distributed-ai", "95b939cdc5b24ded03a70da21533964f9354b731")

SNAPSHOTS = (DEEPLEARNING_CFN, MODELS, MASK_RCNN_SCRIPTS, DEEPLEARNING_EMR, MXNET, DMLC_CORE, TENSORPACK, AWSOME)
EXAMPLE = "example/image-classification"
CIFAR10 = "tutorials/image/cifar10"

GENERATE_TRAINER = Program(
    DEEPLEARNING_CFN,
    "examples/tensorflow/generate_trainer.py",
    "c69b5673dec3e80272e0a2b5724ea86284e2cb2fa3ea2c3c8627baf9f8dfcd5b",
    {
        "--trainer_script_dir": 6,
        "--log_dir": 7,
        "--workers_file_path": 8,
        "--worker_count": 9,
        "--worker_gpu_count": 10,
        "--training_script": 11,
        "2230": 23,
        "2222": 30,
        "source /etc/profile": 35,
        "CUDA_VISIBLE_DEVICES='": 38,
        "--ps_hosts=": 39,
        "--worker_hosts=": 40,
        "--job_name=": 41,
        "--task_index=": 42,
        "2>&1": 44,
    },
)
CIFAR10_TRAIN = Program(
    DEEPLEARNING_CFN,
    "examples/tensorflow/cifar10_multi_machine_train.py",
    "3cdb1e136a8fdfd36bf034631dd7174bc925d1763a6a20d1aedc336fb3aef0b3",
    {
        "max_steps": 21,
        "ps_hosts": 23,
        "worker_hosts": 25,
        "job_name": 28,
        "task_index": 30,
        "train_dir": 32,
        "tf.train.ClusterSpec": 65,
        "tf.train.Server": 68,
        "server.join()": 73,
        "tf.train.replica_device_setter": 77,
        "tf.train.MonitoredTrainingSession": 103,
        "master=server.target": 103,
        "checkpoint_dir=": 105,
    },
)
CIFAR10_MODEL = Program(
    MODELS,
    f"{CIFAR10}/cifar10.py",
    "a3f06c128a9d599be4fb9da10866c4730f1a23b7bb436e35216226bb51fe1cfd",
    {"FLAGS = tf.app.flags.FLAGS": 48, "batch_size": 51, "data_dir": 53},
)
CIFAR10_INPUT = Program(
    MODELS, f"{CIFAR10}/cifar10_input.py", "a297a97a76c04fe3eddb7634268bb961a8703db91ffe5d5b3008da3edbb062c9"
)
CIFAR10_EVAL = Program(
    MODELS,
    f"{CIFAR10}/cifar10_eval.py",
    "66d7561c40286b2d84ffe2e399d7a39a86fb687e2728bc9a2e8242fddb82863d",
    {"import cifar10": 44, "eval_dir": 48, "checkpoint_dir": 52, "num_examples": 56, "run_once": 58},
)
RUN = Program(
    DEEPLEARNING_CFN,
    "examples/distributed-tensorflow/run.sh",
    "17832447c07c5df638f871d4d074133352f712af17e035599c5420a4113c1889",
    {
        "seq 1 $DEEPLEARNING_WORKERS_COUNT": 46,
        "-oStrictHostKeyChecking=no": 48,
        ">> ./hostfile": 49,
        "$HOME/anaconda3/envs/tensorflow_p36/bin": 55,
        "HOROVOD_CYCLE_TIME=0.5": 70,
        "HOROVOD_FUSION_THRESHOLD=67108864": 71,
        "$MPIRUN -np": 72,
        "--hostfile ./hostfile": 73,
        "--mca plm_rsh_no_tree_spawn 1 -bind-to none -map-by slot -mca pml ob1 -mca btl ^openib": 74,
        "-mca btl_tcp_if_exclude lo,docker0": 75,
        "-mca oob_tcp_if_exclude lo,docker0": 76,
        "-mca btl_vader_single_copy_mechanism none": 77,
        "-x NCCL_SOCKET_IFNAME=^docker0,lo": 78,
        "-x NCCL_MIN_NRINGS=8 -x NCCL_DEBUG=INFO": 79,
        "-x LD_LIBRARY_PATH -x PATH": 80,
        "-x HOROVOD_CYCLE_TIME -x HOROVOD_FUSION_THRESHOLD": 81,
        "--output-filename": 82,
        "python3": 83,
    },
)
FIRST_RUN = Program(
    MASK_RCNN_SCRIPTS,
    "run.sh",
    "464e96bcf65ec1855ce22eabc50f164484946270b6c5f4f37c9e3c8e9b6c4f6c",
    {"DATA.VAL=val2017": 87},
)
"""That of 2018."""
HEALTH_CHECK = Program(
    MASK_RCNN_SCRIPTS,
    "cluster-health-check.sh",
    "8fb29cd0aba9ebda569842bf81ccb2e913e664e146c53a7edae4e51866a97385",
    {
        "for i in $(seq 1 $DEEPLEARNING_WORKERS_COUNT)": 3,
        'ssh -oStrictHostKeyChecking=no deeplearning-worker$i "touch /efs/deeplearning-worker$i-health.check"': 6,
    },
)
METADATA_SETUP = Program(
    DEEPLEARNING_EMR,
    "training-on-emr/metadata_setup.sh",
    "ca4b15a1eab84361d21c2cf8e89c9fd27e0c1e391dcf00b1c786c084854bedb1",
    {
        "/home/hadoop/worker_ip_file": 18,
        "yarn node -list": 26,
        "grep RUNNING": 26,
        "nslookup": 28,
        "sort -n -t": 35,
        "nvidia-smi -L": 51,
    },
)
EFS_BOOTSTRAP = Program(
    DEEPLEARNING_EMR,
    "training-on-emr/emr_efs_bootstrap.sh",
    "3d18c5a7d78d358aca24f3f11a11ae1ed25bcb88a321c5a9c1a6bd55aaa0ae38",
    {
        "sudo mkdir -p /efs": 50,
        "sudo mount -t nfs4": 53,
        "nfsvers=4.1": 54,
        "hard,timeo=600,retrans=2": 54,
        ".amazonaws.com:/": 55,
        "/proc/mounts": 63,
    },
)
LAUNCH = Program(
    MXNET,
    "tools/launch.py",
    "5b4161e9df4c37b5c58c12e9cb2c44a820ee3be70d48038ab1cad774a90b16d3",
    {
        "'-n', '--num-workers'": 59,
        "'-s', '--num-servers'": 61,
        "'-H', '--hostfile'": 64,
        "'--launcher'": 71,
        "nargs='+'": 91,
        "parse_known_args": 93,
    },
)
FIT = Program(
    MXNET,
    f"{EXAMPLE}/common/fit.py",
    "0ea20265d72d1d72d17baf417743ff5cb93bf4e3788b5498e6f4f6a5e42105b8",
    {
        "--network": 83,
        "--num-layers": 85,
        "--gpus": 88,
        "--kv-store": 90,
        "--num-epochs": 92,
        "--batch-size": 108,
        "--model-prefix": 112,
    },
)
"""The options of train_cifar10.py and train_mnist.py."""
TRAIN_CIFAR10 = Program(
    MXNET, f"{EXAMPLE}/train_cifar10.py", "dbfebeb51ca371f19512fb19732b0a4116e2d2d9eb438f1dbb96cfd8da6fc267"
)
TRAIN_MNIST = Program(
    MXNET, f"{EXAMPLE}/train_mnist.py", "eb8d377c4a529d4dda7828bd00ad7a970fa673d9d5cb04b6f87ef520f3fe959d"
)
TRACKER = Program(
    DMLC_CORE, "tracker/dmlc_tracker/tracker.py", "ae3b93892261a942ab6473cee128aaee7ccfa2b0845dc354ecb6b989404e1095"
)
FASTER_RCNN = Program(
    TENSORPACK, "examples/FasterRCNN/train.py", "e209049a34c7e73f9933ba1061a1ff6d537fb0ad036fde7083cc38d4e638ab8b"
)

DDP_FOLDER = "3.test_cases/pytorch/ddp"
DDP = Program(
    AWSOME,
    f"{DDP_FOLDER}/ddp.py",
    "92ad985014774683633bbb95ee5303dc299e0c10d95efdf37b10ac52845e774e",
    {
        'os.environ["RANK"]': 55,
        "os.environ['LOCAL_RANK']": 64,
        "root='./data'": 168,
        "--total_epochs": 200,
        "--save_every": 201,
        "--batch_size": 202,
        "--checkpoint_path": 203,
        "--use_mlflow": 204,
    },
)
DDP_REQUIREMENTS = Program(
    AWSOME,
    f"{DDP_FOLDER}/Dockerfile",
    "bbe2d8e7257997f8f1ce44aef0fb0533b515d83610f240b25ba7e5196e3d877a",
    {"mlflow==2.13.2 sagemaker-mlflow==0.1.0": 5},
)
"""What it adds to an image that has PyTorch."""

PROGRAMS = (
    *(GENERATE_TRAINER, CIFAR10_TRAIN, CIFAR10_MODEL, CIFAR10_INPUT, CIFAR10_EVAL),
    *(RUN, FIRST_RUN, HEALTH_CHECK, METADATA_SETUP, EFS_BOOTSTRAP),
    *(LAUNCH, FIT, TRAIN_CIFAR10, TRAIN_MNIST, TRACKER, FASTER_RCNN),
    *(DDP, DDP_REQUIREMENTS),
)


@dataclass(frozen=True)
class PackagedFile:
    """A file in a wheel that is pinned next to this file, in requirements-lightning.txt."""

    wheel: str
    path: str
    sha256: str


LIGHTNING_DEMO = PackagedFile(
    "lightning-2.6.6-py3-none-any.whl",
    "lightning/pytorch/demos/boring_classes.py",
    "b42c9c00f633e7bcb924d2b59b9cb6b93427e282c48af39ff7c6203e5284c755",
)
"""Models and data. The wheel has no program that trains them."""
ACCELERATE_SCRIPT = PackagedFile(
    "accelerate-1.15.0-py3-none-any.whl",
    "accelerate/test_utils/scripts/test_sync.py",
    "05fd0921da9d94e80391aaad570e26f90a6b4cbc3d218f2c2b15e9d0908949ce",
)
"""Compares gradients with those of a training alone. The larger test_script.py next to it is for one machine, as it has
processes append to one file, and for two processes: a third gets none of two rows, and the script expects one."""

OWN = {
    "generate_trainer": (GENERATE_TRAINER, CIFAR10_TRAIN),
    "run.sh": (RUN,),
    "launch.py": (LAUNCH, FIT),
    "health": (HEALTH_CHECK,),
    "metadata_setup.sh": (METADATA_SETUP,),
    "emr_efs_bootstrap.sh": (EFS_BOOTSTRAP,),
}
"""The programs of each own script in tests/integration/old_scripts.py."""


@dataclass(frozen=True)
class Change:
    """What a page's command changes in a published program, so that it runs today."""

    program: Program
    line: int
    old: str
    new: str


_AS_TENSORFLOW_1 = ("import tensorflow as tf", "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()")
_WITH_OLD_NAMES = (
    "import argparse",
    'import argparse, sys; sys.path.append("/opt/deeplearning/trainers"); '
    "import fasterrcnn; fasterrcnn.add_old_names()",
)
CHANGES = (
    Change(CIFAR10_TRAIN, 16, *_AS_TENSORFLOW_1),
    Change(CIFAR10_TRAIN, 81, "tf.contrib.framework", "tf.train"),
    Change(CIFAR10_MODEL, 44, *_AS_TENSORFLOW_1),
    Change(CIFAR10_INPUT, 25, *_AS_TENSORFLOW_1),
    Change(CIFAR10_EVAL, 42, *_AS_TENSORFLOW_1),
    Change(FASTER_RCNN, 4, *_WITH_OLD_NAMES),
)
