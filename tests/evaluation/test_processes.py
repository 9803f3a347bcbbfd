"""Variables that a launcher left behind do not make several processes of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fslstm_plugin.evaluation.processes import forget_stale

EXTENSION = Path(__file__).parents[1] / "extension"

JOB = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_JOB_NAME": "x", "SLURM_NODEID": "0", "SLURM_NODELIST": "n"}
STALE = {
    "local": {"LOCAL_RANK": "1"},
    "rank": {"RANK": "1", "WORLD_SIZE": "2"},
    "elastic": {"TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "1", "WORLD_SIZE": "2"},
    "job": {**JOB, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"},
    "task": {**JOB, "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "1"},
    "lsf": {"JSM_NAMESPACE_RANK": "3"},
    "mpi": {"PMI_RANK": "1", "PMI_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
}
TRAIN = (
    *("train", "--dataset", "dots", "--backbone", "tiny", "--algorithm", "nn", "--max-steps", 1, "--ways", 3),
    *("--shots", 1, "--queries", 2, "--episodes-per-step", 1, "--val-episodes", 2, "--val-ways", 3, "--val-shots", 1),
    *("--val-queries", 2, "--precision", 32, "--accelerator", "cpu", "--devices", 1, "--name", "a"),
)


def call(
    folder: Path, data_root: Path, variables: dict[str, str], *arguments: object
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FSLSTM_DATA_ROOT": str(data_root), "PYTHONPATH": str(EXTENSION), **variables}
    command = [sys.executable, "-m", "fslstm_cli", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("variables", STALE.values(), ids=STALE)
def test_variables_that_lightning_heeds_are_forgotten(variables: dict[str, str]) -> None:
    left = dict(variables)
    forget_stale(left)
    assert not {*left} & {"LOCAL_RANK", "RANK", "TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "JSM_NAMESPACE_RANK"}


@pytest.mark.parametrize("names", [("elastic", "lsf", "mpi"), ("job",)], ids="+".join)
def test_a_training_with_stale_variables_is_one_process(
    names: tuple[str, ...], tmp_path: Path, data_root: Path
) -> None:
    variables = {name: value for each in names for name, value in STALE[each].items()}
    done = call(tmp_path, data_root, variables, *TRAIN)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "a" / "model.safetensors").is_file()


@pytest.mark.parametrize("more", [{}, {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511", "WORLD_SIZE": "1"}])
def test_an_evaluation_too(more: dict[str, str], tmp_path: Path, data_root: Path) -> None:
    np.savez(tmp_path / "f.npz", features=np.eye(40, 4), labels=np.arange(40) % 5)
    few = ("--episodes", 4, "--shots", 1, "--queries", 2, "nn", "--json", "rows.json")
    done = call(tmp_path, data_root, {**STALE["elastic"], **more}, "eval", "--features", "f.npz", *few)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "rows.json").is_file()


def test_tasks_that_srun_started_are_several(tmp_path: Path, data_root: Path) -> None:
    """Lightning takes them for such; where their number is not that of the devices, a sentence says so."""
    variables = {**STALE["job"], "SLURM_STEP_NUM_TASKS": "4"}
    kept = dict(variables)
    forget_stale(kept)
    assert kept == variables
    done = call(tmp_path, data_root, variables, *TRAIN)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "Lightning cannot train like this: " in done.stderr
