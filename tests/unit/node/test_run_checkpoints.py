"""Which checkpoints of a run are complete, by the rule of each format, and which of them is the newest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from deeplearning.runs import checkpoints
from deeplearning.runs.folder import Folder

from tests.unit.node.users_kit import HOSTILE, bounded, prepare

DCP = ("__0_0.distcp", "__1_0.distcp")
TRAINER = ("config.json", "model.safetensors", "optimizer.pt", "rng_state.pth")
DEEPSPEED = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")


def folder_of(name: str, *files: str) -> dict[str, str]:
    return {f"{name}/{file}": "x" for file in files}


def write(root: Path, files: dict[str, str]) -> str:
    """Write files and empty folders (their names end with a slash), each entry later than the ones before."""
    for name, text in files.items():
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(text)
    for at, name in enumerate(files):
        os.utime(root / name, (at, at))
    for at, name in enumerate(dict.fromkeys(name.partition("/")[0] for name in files)):
        os.utime(root / name, (at, at))
    return str(root)


@pytest.mark.parametrize(
    ("files", "complete"),
    [
        # PyTorch's distributed checkpoint
        (folder_of("step-1", *DCP, ".metadata"), ["step-1"]),
        (folder_of("step-1", *DCP, ".metadata") | folder_of("step-2", *DCP), ["step-1"]),
        (folder_of("step-1", *DCP, ".metadata.tmp"), []),
        (folder_of("checkpoint-1", *DCP, ".metadata"), ["checkpoint-1"]),
        # Hugging Face's Trainer, with and without a sharded model, and Accelerate
        (folder_of("checkpoint-500", *TRAINER, "trainer_state.json"), ["checkpoint-500"]),
        (
            folder_of("checkpoint-500", *TRAINER, "trainer_state.json") | folder_of("checkpoint-1000", *TRAINER),
            ["checkpoint-500"],
        ),
        (folder_of("checkpoint-5", "pytorch_model_fsdp_0/__0_0.distcp", "pytorch_model_fsdp_0/.metadata"), []),
        (folder_of("checkpoint-5", "model.safetensors", "optimizer.bin"), []),
        (folder_of("checkpoint-5", "model.safetensors", "random_states_0.pkl"), ["checkpoint-5"]),
        (folder_of("checkpoint-best", "model.safetensors"), ["checkpoint-best"]),
        # DeepSpeed
        (
            folder_of("global_step10", *DEEPSPEED) | {"latest": "global_step10\n"} | folder_of("global_step20", "a"),
            ["global_step20", "global_step10"],
        ),
        (folder_of("global_step10", *DEEPSPEED) | {"latest": "global_step20"}, ["global_step10"]),
        ({"latest": "global_step20"}, []),
        # Megatron, with shards of its own and of PyTorch
        (
            folder_of("iter_0000010/mp_rank_00", "model_optim_rng.pt")
            | {"latest_checkpointed_iteration.txt": "10"}
            | folder_of("iter_0000020/mp_rank_00", "model_optim_rng.pt"),
            ["iter_0000020", "iter_0000010"],
        ),
        (
            folder_of("iter_0000010", *DCP, ".metadata")
            | {"latest_checkpointed_iteration.txt": "10"}
            | folder_of("iter_0000020", *DCP),
            ["iter_0000010"],
        ),
        (
            folder_of("release", "a") | folder_of("other", "a") | {"latest_checkpointed_iteration.txt": "release"},
            ["other", "release"],
        ),
        (folder_of("iter_12345678", "a") | {"latest_checkpointed_iteration.txt": "12345678"}, ["iter_12345678"]),
        # One that is named and not complete
        (
            folder_of("old", "a") | folder_of("new", *DCP) | {"latest": "new"},
            ["old"],
        ),
        # TensorFlow and TensorPack, and the collection's own
        (
            folder_of("from-0", "checkpoint", "m-9.index", "m-9.data-00000-of-00001", "m-10.data-00000-of-00001"),
            ["from-0/m-9"],
        ),
        ({"epoch-1.pt": "x", ".epoch-2.pt": "x"}, ["epoch-1.pt"]),
        # What has no rule, and a folder whose format does not show yet
        (folder_of("mine", "weights.bin") | {"notes.txt": "x"}, ["mine", "notes.txt"]),
        ({"epoch-1.pt": "x", "begun/": ""}, ["epoch-1.pt"]),
        (folder_of("latest", "weights.bin"), ["latest"]),
        ({}, []),
    ],
)
def test_a_checkpoint_is_complete_by_the_rule_of_its_format(
    files: dict[str, str], complete: list[str], tmp_path: Path
) -> None:
    assert checkpoints.complete(write(tmp_path, files)) == complete
    assert checkpoints.complete(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    "text",
    ["../a", "a/../a", "/a", ".a", "", "a\nb", "a" * 300, "\xff", "9" * 200, "a\0", "a b", "A", "inner/a"],
)
@pytest.mark.parametrize("pointer", checkpoints.POINTERS)
def test_a_pointer_that_names_no_checkpoint_beside_it_counts_for_nothing(
    pointer: str, text: str, tmp_path: Path
) -> None:
    root = tmp_path / "checkpoints"
    write(root, folder_of("a", "weights.bin") | folder_of("b", "weights.bin") | {".a": "x"})
    (root / pointer).write_bytes(text.encode("latin-1"))
    assert Folder(str(tmp_path)).checkpoints() == ["a", "b"]
    (root / pointer).write_text("a\n")
    assert Folder(str(tmp_path)).checkpoints() == ["b", "a"]


@pytest.mark.root
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_pointer_that_training_code_has_prepared_is_not_followed(kind: str, tmp_path: Path) -> None:
    write(tmp_path, folder_of("a", "weights.bin") | folder_of("b", "weights.bin"))
    prepare(tmp_path / "latest", kind)
    names: Any = bounded(lambda: checkpoints.complete(str(tmp_path)))
    assert [name for name in names if name != "latest"] == ["a", "b"]


def test_a_link_of_the_users_to_the_newest_is_one_of_them(tmp_path: Path) -> None:
    write(tmp_path, {"epoch-1.pt": "x", "epoch-2.pt": "x"})
    (tmp_path / "latest").symlink_to("epoch-2.pt")
    assert checkpoints.complete(str(tmp_path)) == ["epoch-1.pt", "epoch-2.pt", "latest"]


def test_a_checkpoint_that_its_trainer_removes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = checkpoints._entries

    def entries(folder: str) -> list[os.DirEntry[str]]:
        listed = really(folder)
        if folder == str(tmp_path):
            (tmp_path / "epoch-1.pt").unlink()
        return listed

    write(tmp_path, {"epoch-1.pt": "x", "epoch-2.pt": "x"})
    monkeypatch.setattr(checkpoints, "_entries", entries)
    assert checkpoints.complete(str(tmp_path)) == ["epoch-2.pt"]
