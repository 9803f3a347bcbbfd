"""Whether this process is one of several, by the environment variables of whatever started it.

Such variables outlive what set them: in a shell that was started by a launcher, in a job's script, in a container.
Libraries believe each of them by itself, train as the second of one process and write nothing.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

# A launcher (torchrun, or Lightning for further devices) sets all of these, and each process needs all of them.
_TOGETHER = {"LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
_LAUNCHER = {"LOCAL_RANK", "RANK", "TORCHELASTIC_RUN_ID"}  # The others may be set by hand, for several machines.
# In a job of SLURM they are set for its script too; only srun says how many tasks it started.
_TASKS, _SLURM = "SLURM_STEP_NUM_TASKS", {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_PROCID", "SLURM_LOCALID"}
_LSF_TOGETHER = {"LSB_JOBID", "LSB_DJOB_RANKFILE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_SIZE"}
_LSF = {"JSM_NAMESPACE_RANK"}


def forget_stale(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove what says that this process is one of several where nothing started several.

    Example:
        >>> left = {"LOCAL_RANK": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "HOME": "/root"}
        >>> forget_stale(left)
        >>> left
        {'HOME': '/root'}
        >>> whole = {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}
        >>> forget_stale(whole)
        >>> len(whole)
        4
    """
    tasks = environment.get(_TASKS, "1")
    started = (
        (_LAUNCHER, environment.keys() >= _TOGETHER),
        ({"TORCHELASTIC_RUN_ID"}, environment.keys() >= _TOGETHER | {"RANK"}),  # torchrun sets RANK, Lightning may not
        (_SLURM, tasks.isdecimal() and int(tasks) > 1),
        (_LSF, environment.keys() >= _LSF_TOGETHER),
    )
    for names, several in started:
        for name in names if not several else ():
            environment.pop(name, None)
