# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The options of single playbooks, as a table. Every playbook takes the settings of the cluster as well."""

from __future__ import annotations

from collections.abc import Sequence

from ...module_utils.contract import run_files, run_request
from ...module_utils.contract.frameworks import DISTRIBUTIONS, RECORDS
from ..runs import git_clone
from . import readers as r
from . import run_readers as rr
from .option import Option
from .settings import MOST_NODES

_DISTRIBUTION = r.choice(*dict.fromkeys(name for names in DISTRIBUTIONS.values() for name in names))
_TRAIN = ("train",)
_NEW_RUNS = ("train", "evaluate")
_HEALTH = ("health", "site", "emr")
_STAGE = ("stage",)
LOCKING = ("site", "emr", "provision", "extend", "replace", "image", "destroy")
"""The playbooks that change AWS resources, one at a time for each cluster."""

TABLE: Sequence[Option] = (
    Option(
        "framework",
        r.choice(*RECORDS).such_as("pytorch"),
        "The framework that trains. Without it, `cluster_default_framework`.",
        _TRAIN,
    ),
    Option(
        "distribution",
        _DISTRIBUTION.such_as("dist_sync"),
        "How the processes work together. "
        f"{'; '.join(f'{name}: ' + ', '.join(known) for name, known in DISTRIBUTIONS.items())}. By default the first, "
        "or what fits the machines.",
        _TRAIN,
    ),
    Option(
        "script",
        rr.script,
        f"Your own script: a file on this machine, a path on the nodes, or `{git_clone.FORM}`. Without it, the "
        "collection's CIFAR-10 trainer of the framework.",
        _TRAIN,
    ),
    Option(
        "requirements",
        r.text.such_as("requirements.txt"),
        "Packages that your script needs in addition to the framework's: a requirements.txt, or a pyproject.toml with "
        "dependencies. A file of this machine, one on the nodes, or one in the repository of the script.",
        _TRAIN,
    ),
    Option(
        "module",
        rr.module,
        "Your own script as a module of a package, started as `python -m pkg.train` in the root of the code: in the "
        "folder `sync`, without it in the current one, or in the repository of `script`.",
        _TRAIN,
    ),
    Option(
        "recipe",
        r.text.such_as("maskrcnn"),
        "A recipe: these options in a file, one of the collection's by its name or one of your own by its path. "
        "Options on the command line override it.",
        _TRAIN,
    ),
    Option("recipe_config", rr.config, "Changes to single settings of the recipe's script.", _TRAIN),
    Option("sync", rr.folder, "A folder of this machine to copy next to a script of this machine.", _TRAIN),
    Option(
        "code_include",
        r.list_of(r.text).such_as(["config/credentials.json"]),
        "Files and folders to send with the code although their names or contents are those of secrets, by their paths "
        "in the folder or repository. Without it, they stay on this machine.",
        _TRAIN,
    ),
    Option(
        "script_args",
        rr.words.such_as(["--epochs", "2"]),
        "The script's arguments: a list, or a text that is split as a shell does. `{data}`, `{run}`, `{rank}`, "
        "`{world}`, `{job_name}`, `{task_index}`, `{ps_hosts}` and `{worker_hosts}` are filled in.",
        _NEW_RUNS,
    ),
    Option(
        "evaluate_args",
        rr.words.such_as(["--test", "--weights", "{checkpoint}"]).by_default(["--run-dir", "{run}", "--evaluate"]),
        "What makes the script evaluate, after the run's arguments and `script_args`. `{run}` is the folder of the run "
        "to evaluate, `{checkpoint}` the path of its chosen or newest checkpoint.",
        ("evaluate",),
    ),
    Option(
        "checkpoint",
        r.text.such_as("3"),
        "Which checkpoint: its file's name, or the number in it. Without it, the newest. Adds `--checkpoint "
        "{checkpoint}` if `evaluate_args` has no `{checkpoint}`.",
        ("evaluate",),
    ),
    Option(
        "nodes",
        rr.nodes,
        "How many nodes, a range such as 6-8, or their names. Without it, all that train; for evaluate, those of the "
        "run. With a range, the run goes on with as few as its first number when others fail.",
        _NEW_RUNS,
    ),
    Option(
        "processes_per_node",
        rr.processes.by_default("auto"),
        "Worker processes on each node, which share its GPUs. auto: one per GPU, or one; with mxnet's local, device "
        "and dist_device_sync one with all GPUs.",
        _TRAIN,
    ),
    Option(
        "servers",
        r.integer(1, run_request.MOST_PROCESSES).such_as(2),
        "Number of parameter servers, for distributions that have them. By default one per node.",
        _TRAIN,
    ),
    Option(
        "dataset",
        rr.dataset,
        "The data set to train on: cifar10, mnist, generated (for trials, and always labelled as such) or "
        "s3://bucket/prefix, which are staged once; a folder's name in `$EFS_MOUNT/data`, or a path on the nodes. "
        "Without it, cifar10 for the collection's trainers, nothing for a script.",
        _TRAIN,
    ),
    Option(
        "data_on",
        r.mode("efs", "node", "instance_store"),
        "Where to stage the data set: on the shared file system, or on each node's own disk, which is its instance "
        "store if its type has one. instance_store: the same, and refused if a type has none.",
        _TRAIN,
    ),
    Option(
        "emr",
        r.flag,
        "A cluster of EMR's machines, as emr.yml creates it, in place of Auto Scaling groups.",
        ("plan", "provision"),
    ),
    Option(
        "dataset",
        r.text.such_as("coco2017"),
        "A data set to compare with the nodes' own disks, for `train.yml -e data_on=node`: one of the collection's, or "
        "one that is staged in the account's bucket.",
        ("plan",),
    ),
    Option(
        "data_on",
        r.mode("node", "instance_store"),
        "instance_store: refuse types without instance store.",
        ("plan",),
    ),
    Option(
        "data_source",
        rr.data_source,
        "Where to take a named data set from, if not from its publisher: a file of this machine, https:// or s3://.",
        _TRAIN,
    ),
    Option("run_id", rr.run_id, "The run's name. Without it, it is made of framework and time.", _TRAIN),
    Option(
        "resume",
        rr.run_id,
        "A run that has ended: it continues from its newest checkpoint, in its own folder and with its own options. "
        "Other options on the command line replace these, but not framework, script and what else says what it is.",
        _TRAIN,
    ),
    Option(
        "python",
        rr.node_folder.such_as("/efs/env/bin/python"),
        "The Python of an environment of your own on the nodes. Without it, the framework's is installed and used.",
        _TRAIN,
    ),
    Option(
        "processor",
        r.boolean,
        "Train on the processors of nodes that have GPUs: with the framework's packages for processors, and with as "
        "many processes as on the GPUs, which none of them sees.",
        _TRAIN,
    ),
    Option("detach", r.flag, "Do not follow the run.", _NEW_RUNS),
    Option(
        "max_restarts",
        r.integer(0, 100).such_as(0).by_default(run_request.DEFAULTS["max_restarts"]),
        "How often to restart a run after a member was lost or held. A script that fails by itself is not restarted.",
        _TRAIN,
    ),
    Option(
        "stop_seconds",
        r.integer(1, run_request.MOST_STOP_SECONDS).such_as(60).by_default(run_request.DEFAULTS["stop_seconds"]),
        "Seconds that the script's processes have to save after SIGTERM, when the run is stopped or another process of "
        "it has failed. Then they are killed.",
        _TRAIN,
    ),
    Option(
        "on_busy",
        r.choice("refuse", "wait").by_default(run_request.DEFAULTS["busy"]),
        "What to do if another run uses these nodes.",
        _NEW_RUNS,
    ),
    Option(
        "preflight",
        r.boolean.such_as(False),
        "Test the connections of the nodes, and of their GPUs, first, for up to a few minutes. By default before a run "
        "on several GPUs, unless it trains on the processors.",
        _TRAIN,
    ),
    Option("env", rr.environment, "Environment variables for the script.", _TRAIN),
    Option(
        "runs_dir",
        rr.node_folder.such_as("/efs/mine"),
        "The folder to create the run's folder in, instead of `$EFS_MOUNT/runs`.",
        _TRAIN,
    ),
    Option("sweep", rr.sweep, "Train on these numbers of nodes, one after another, and report.", _TRAIN),
    Option("run_id", rr.run_or_all, "Which run, or all.", ("stop",), required="say which run"),
    Option("run_id", rr.run_or_all, "Which run, or all.", ("tensorboard", "status")),
    Option("watch", r.flag, "Print it again every few seconds, until Ctrl-C.", ("status",)),
    Option("format", r.mode("text", "json"), "Print it as text or as JSON.", ("status",)),
    Option("run_id", rr.run_id, "Which run.", ("follow", "evaluate", "get"), required="say which run"),
    Option(
        "what",
        r.mode(*run_files.KINDS),
        "What to get: the model, the complete checkpoints, the logs with the metrics, or TensorBoard's files.",
        ("get",),
    ),
    Option(
        "to",
        rr.destination,
        "A folder of this machine, or s3://bucket/prefix. Without it, a folder of the run's name in the current one.",
        ("get",),
    ),
    Option("run_id", rr.run_ids, "Which runs. Without it, the last 100 that have ended.", ("report",)),
    Option(
        "node",
        rr.one_node.such_as("deeplearning-worker2"),
        "Which node, by its name or instance id. Without it, all.",
        ("logs",),
    ),
    Option(
        "node",
        rr.one_node.such_as("i-0a1b2c3d4e5f60718"),
        "Which machine, by its instance id: it is terminated, and Auto Scaling launches another one, which gets the "
        "same name. A name is answered with the id.",
        ("replace",),
        required="give the instance id of the machine to replace",
    ),
    Option("run_id", rr.run_id, "Which run. Without it, the newest ten.", ("logs",)),
    Option("output", r.flag, "Also print what the processes of the run print.", ("follow",)),
    Option("state", r.mode("present", "absent"), "absent: stop it.", ("tensorboard", "status_page")),
    Option(
        "health_scope",
        r.choice("training"),
        "training: also check that a framework trains on all nodes, with a short run.",
        _HEALTH,
    ),
    Option(
        "framework",
        r.choice(*RECORDS).such_as("pytorch"),
        "The framework of that short run. Without it, `cluster_default_framework`.",
        _HEALTH,
    ),
    Option("distribution", _DISTRIBUTION.such_as("ddp"), "Its distribution. Without it, the default one.", _HEALTH),
    Option(
        "health_bandwidth_gbits",
        r.integer(0, 10_000).such_as(10).by_default(0),
        "Gbit/s that each node must reach to the next one. 0: a share of what its instance type has.",
        _HEALTH,
    ),
    Option(
        "dataset",
        r.text.such_as("coco2017"),
        "The data set: one of the collection's by its name, or a name for your own files.",
        _STAGE,
        required="name a data set",
    ),
    Option(
        "stage_target",
        r.mode("bucket", "efs"),
        "bucket: fetch, check and upload the data set. efs: also unpack it to `$EFS_MOUNT/data`.",
        _STAGE,
    ),
    Option("source_dir", r.path.such_as("~/Downloads"), "A folder of this machine to take the files from.", _STAGE),
    Option(
        "bucket",
        rr.s3_uri,
        "A bucket, or bucket/prefix, instead of the account's own, `<account>-<region>-deeplearning-data`.",
        _STAGE,
    ),
    Option(
        "stage_folder",
        r.path.such_as("/mnt/stage"),
        "The folder of this machine to fetch files to. Without it, `.deeplearning/stage`. COCO 2017 needs 20 GiB.",
        _STAGE,
    ),
    Option("stage_replace", r.flag, "Send all files again, in place of what others have put in the bucket.", _STAGE),
    Option(
        "stage_nodes",
        r.integer(1, MOST_NODES).such_as(2),
        "How many nodes unpack. Without it all, but no more than there are archives.",
        _STAGE,
    ),
    Option(
        "destroy",
        r.text.such_as("red"),
        "Consent: the name of the cluster to remove. `red@eu-west-1` also confirms the region. Without that, the "
        "playbook fails if nothing is left in this region, and the project's files record the cluster in another "
        "region or account, or record none and another region of the account has it.",
        ("destroy",),
    ),
    Option(
        "destroy_also",
        r.list_of(r.one_of_ids("i", "nat", "eipalloc", "eni", "vol")),
        "Consent: which resources without the cluster's tag to delete too, by their ids. Only those in the cluster's "
        "own VPC are accepted, as `destroy.yml` and `deeplearning.aws.audit` list them.",
        ("destroy",),
    ),
    Option(
        "destroy_data",
        r.bucket.such_as("123456789012-us-east-1-deeplearning-data"),
        "Consent: the name of the account's bucket of data sets, to delete it with all that is in it.",
        ("destroy",),
    ),
    Option(
        "hours",
        r.number(0, 8760).such_as(4),
        "By how many hours to postpone the end of all machines. Without a scheduled end, they end after so many hours.",
        ("extend",),
        required="say by how many hours",
    ),
    Option(
        "delete_actions",
        r.list_of(r.text).such_as(["zz"]),
        "Scheduled actions of the Auto Scaling groups to delete: those of other people and programs, by their names as "
        "`status.yml` prints them.",
        ("site", "provision", "plan"),
    ),
    Option(
        "remove_in_use",
        r.list_of(r.text).such_as(["i-0123456789abcdef0"]),
        "Workers that may be removed (a smaller `cluster_worker_count`) although the master says that a run uses them, "
        "by the ids of their instances.",
        ("site", "provision", "plan"),
    ),
    Option(
        "remove_workers",
        r.integer(1, 1023).such_as(3),
        "Consent: how many workers a smaller `cluster_worker_count` may remove.",
        ("site", "emr", "provision", "plan"),
    ),
    Option(
        "remove_end",
        r.flag,
        "Consent: `cluster_ttl_hours`, `cluster_idle_minutes` or `cluster_emr_idle_minutes` may remove the end that "
        "the cluster has, if they are 0 or never.",
        ("site", "emr", "provision", "plan"),
    ),
    Option(
        "lock_wait",
        r.integer(0, 86_400).such_as(1800).by_default(300),
        "Seconds to wait while another playbook changes the cluster. destroy asks that playbook to stop, and takes the "
        "lock over at the end of the wait.",
        LOCKING,
    ),
    Option(
        "break_lock",
        r.text.such_as("0123456789abcdef"),
        "Take over the lock of the cluster that has this id, as `status.yml` and the playbook that waits print it, "
        "although the playbook that holds it may still run.",
        LOCKING,
    ),
    Option(
        "remove_duplicates",
        r.list_of(r.one_of_ids("nat", "eipalloc")),
        "Consent: which of the cluster's NAT gateways and Elastic IP addresses to delete, by their ids. Two runs of "
        "`site.yml` of an older version at the same time left more of them than the cluster needs. Only those that "
        "nothing uses are accepted, as the plan lists them.",
        ("site", "emr", "provision", "plan"),
    ),
    Option("audit", r.text.such_as("all"), "The cluster to list, or all. Without it, `cluster_name`.", ("audit",)),
    Option(
        "project",
        r.path.such_as("~/team").by_default("."),
        "The folder to write the files of a project to. Without it, the current one.",
        ("new_project",),
    ),
    Option(
        "image_frameworks",
        r.list_of(r.choice(*(name for name, record in RECORDS.items() if not record.has_horovod))).such_as(["pytorch"]),
        "The frameworks to install in the image. Without it, `cluster_default_framework`.",
        ("image",),
    ),
    Option(
        "image_state",
        r.mode("present", "absent"),
        "present: make the image unless it exists. absent: delete all images that the cluster has made.",
        ("image",),
    ),
)
PLAYBOOKS = {
    "site": "Makes AWS match the settings, waits until the machines are members, and ends with the health report.",
    "emr": "Does the same with EMR's machines.",
    "plan": "Checks the settings against the account, and prints what would be created and its price. Changes nothing.",
    "provision": "Creates the resources in AWS, and waits for the machines: the first part of `site.yml`.",
    "configure": "Configures all machines by ssh, or those that `--limit` selects, for example after something on them "
    "was changed by hand.",
    "status": "Describes the cluster on one screen, or with `run_id` a run.",
    "health": "Checks each node and its connections to the others.",
    "train": "Starts a run and follows it.",
    "follow": "Follows a run again, from its beginning.",
    "stop": "Ends the processes of a run on all nodes.",
    "evaluate": "Evaluates a checkpoint of a run.",
    "tensorboard": "Starts TensorBoard on the master, and prints the tunnel to it.",
    "report": "Writes a page with a table and plots of runs.",
    "get": "Brings the model, the checkpoints, the logs or the curves of a run to this machine or to a bucket.",
    "stage": "Copies a data set to the account's bucket of data sets, and to the file system.",
    "status_page": "Serves a page with members, their load and the curves of runs, through a tunnel.",
    "logs": "Writes an archive with what shows why something failed, from AWS, nodes and runs.",
    "replace": "Terminates the machine of a node, so that Auto Scaling launches another one for it.",
    "extend": "Postpones the end of the machines.",
    "image": "Makes an AMI with the environments of frameworks, so that machines boot faster.",
    "audit": "Lists the resources of one cluster, or all clusters of the region.",
    "destroy": "Removes what the cluster created, and checks at its end that nothing is left.",
    "new_project": "Writes the files of a project of your own into a folder. Existing files stay as they are.",
}
"""The playbooks that people start, with what each does."""


def name_of(playbook: str) -> str:
    """Return the argument of ansible-playbook that runs it."""
    return f"deeplearning.aws.{playbook}"


def options_of(playbook: str) -> dict[str, Option]:
    return {option.name: option for option in TABLE if playbook in option.playbooks}
