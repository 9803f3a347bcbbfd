"""What both kinds of training share: the Lightning Trainer, exact checkpoints, a clean end on Ctrl-C, progress."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import (
    FSLSTMError,
    RunError,
    SingularError,
    StorageError,
    UsageError,
    count_of,
    is_out_of_memory,
    reason,
)
from ..evaluation.processes import forget_stale
from ..runs.folder import Run
from ..stopping import Interrupted, listen, listening
from ..storage.damage import without_advice
from ..storage.files import damaged_member, replacing
from ..storage.plain import read_plain
from .metrics import Metrics
from .replay import Replayable
from .saying import say


class NonFiniteError(FSLSTMError):
    """The training diverged: what was observed, with the step and the learning rate."""

    def __init__(self, trainer: pl.Trainer, what: str) -> None:
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        super().__init__(
            f"The {what} at step {trainer.global_step} with learning rate {rate:g}. "
            "What was saved before is kept; try a smaller learning rate, or `precision=32`."
        )


SECONDS_BETWEEN_SAVES = 60


class StepSeed(pl.Callback):
    """Seeds the global generator from (seed, step, rank), so that dropout does not depend on interruptions."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        """Seed for the coming step."""
        words = np.random.SeedSequence([self.seed, trainer.global_step, trainer.global_rank]).generate_state(1)
        kind, seed = module.device.type, int(words[0])
        if kind not in ("cpu", "cuda"):
            torch.manual_seed(seed)
            return
        # torch.manual_seed seeds absent devices too, which takes as long as a small step.
        torch.default_generator.manual_seed(seed)
        if kind == "cuda":
            torch.cuda.manual_seed(seed)


class WholeCheckpoints(TorchCheckpointIO):
    """Writes checkpoints atomically (flushed, then renamed); reads one only if it is whole and of this training.

    Lightning would write to the system's folder for temporary files first, and leave the file there when killed.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        # Digests of what must not change when the training is continued, by its name in messages.
        self.origin: dict[str, str] = {}

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write the checkpoint; the old one stays until the new one is whole."""
        content = io.BytesIO()  # torch would hide the system's reason for refusing to write
        torch.save({**checkpoint, "origin": self.origin}, content)
        with replacing(Path(path)) as temporary:
            temporary.write_bytes(content.getbuffer())

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read the checkpoint, unless it is damaged, or was made with another configuration or other images."""
        damaged = damaged_member(Path(path))
        if damaged:
            raise _damaged(self.run, f"{damaged} does not fit its checksum")
        checkpoint = super().load_checkpoint(path, *args, **kwargs)
        if not isinstance(checkpoint, dict) or "origin" not in checkpoint:
            raise _damaged(self.run, "no training of fslstm wrote it")
        for what, digest in self.origin.items():
            if checkpoint["origin"][what] != digest:
                raise RunError(
                    f"The training cannot continue from {path}: {what} changed since it began. "
                    "Undo that, or start a new run."
                )
        return checkpoint


def _origin(run: Run, data_digest: str) -> dict[str, str]:
    content = json.dumps(read_plain(run.path / "config.json", Any), sort_keys=True)  # spaces and order do not matter
    return {"config.json": hashlib.blake2b(content.encode(), digest_size=16).hexdigest(), "the images": data_digest}


class Checkpoints(pl.Callback):
    """Keeps ``last.ckpt`` whole and recent, and ends the training between two steps when asked to.

    It acts before a step, when all that belongs to the one before is done: the metrics are recorded and, after the last
    step of an epoch, the weights validated. Lightning cannot continue from the end of a step without losing these.
    Between two checkpoints are ``every`` steps, or a minute if it is None.
    """

    def __init__(self, run: Run, metrics: Metrics, every: int | None) -> None:
        self.run = run
        self.metrics = metrics
        self.every = every
        self.saved, self.saved_at = 0, 0.0
        self.started = False  # Whether the training has begun, so that a checkpoint to continue from was restored.
        self.stop_signal = 0  # The signal that asked for the end, 0 if none did.

    def request_stop(self, number: int, *_: object) -> None:
        """Signal handler: the first signal ends the training after the current step, the second one at once."""
        if self.stop_signal:
            raise KeyboardInterrupt
        self.stop_signal = number

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Count the steps from here, and take the signals back from Lightning, which would exit without saving."""
        self.saved, self.saved_at = trainer.global_step, time.monotonic()
        self.started = True
        listen(self.request_stop)

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Save when it is time, and end the training if a signal came."""
        stopping, late = bool(self.stop_signal), time.monotonic() - self.saved_at >= SECONDS_BETWEEN_SAVES
        due = late if self.every is None else trainer.global_step - self.saved >= self.every
        if trainer.world_size > 1:  # a signal, or the minute's end, may reach one rank before the others
            stopping, due = (trainer.strategy.reduce_boolean_decision(each, all=False) for each in (stopping, due))
        if stopping or due:
            self._save(trainer)
        if stopping:
            raise self.stopped(trainer)

    def stopped(self, trainer: pl.Trainer) -> Interrupted:
        """What to raise where a signal ends the training and all is saved."""
        return Interrupted(
            f"Stopped at step {trainer.global_step}; everything is saved. Continue with {self.run.resume_command}.",
            self.stop_signal,
        )

    def on_train_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Save the final state."""
        self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        require_finite(trainer)
        if trainer.is_global_zero:
            self.metrics.write()
        trainer.save_checkpoint(self.run.checkpoint)
        self.saved, self.saved_at = trainer.global_step, time.monotonic()


def require_finite(trainer: pl.Trainer) -> None:
    """Refuse to save weights that are not numbers."""
    if not torch.stack([value.isfinite().all() for value in trainer.lightning_module.state_dict().values()]).all():
        raise NonFiniteError(trainer, "weights became infinite or not a number")


class FiniteLoss(pl.Callback):
    """Stops when the loss is not a number; on a GPU it checks every few steps only, to avoid synchronisation."""

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        """Look at the loss of the step."""
        every = 1 if isinstance(trainer.accelerator, CPUAccelerator) else 20
        if trainer.global_step % every == 0 and not torch.isfinite(outputs["loss"]).item():
            raise NonFiniteError(trainer, "loss became infinite or not a number")

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """A head may fail on such features before there is a loss."""
        if isinstance(exception, SingularError):
            raise NonFiniteError(trainer, "features became too large or not a number") from exception

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Look at the weights before the callbacks that save them."""
        require_finite(trainer)


class TrainingProgress(pl.Callback):
    """A Rich progress bar over the whole training; plain lines where no terminal is attached.

    The rate counts units such as ``"episode"``, of which a step processes ``units_per_step``.
    """

    def __init__(self, unit: str, units_per_step: int, console: Console) -> None:
        self.unit, self.units_per_step, self.console = unit, units_per_step, console
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=console,
        )
        self.task = self.progress.add_task("step", total=None, numbers="")
        self.shown = self.began = time.monotonic()
        self.first_step = 0

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Start the clock, and the bar where a terminal is attached."""
        if trainer.global_rank:
            return
        self.shown = self.began = time.monotonic()
        self.first_step = trainer.global_step
        self.progress.update(self.task, total=trainer.max_steps, completed=trainer.global_step)
        begun = f", from step {trainer.global_step:,} on" if trainer.global_step else ""
        say(
            self.console,
            f"{count_of(trainer.max_steps, 'step')} of {count_of(self.units_per_step, self.unit)}, "
            f"{count_of(f'{trainer.max_steps / trainer.num_training_batches:.4g}', 'epoch')}{begun}.",
        )
        if self.console.is_terminal:
            self.progress.start()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Show step, loss, accuracy and rate periodically."""
        patience = 0.5 if self.console.is_terminal else 30
        now = time.monotonic()
        if trainer.global_rank or (now - self.shown < patience and trainer.global_step < trainer.max_steps):
            return
        self.shown = now
        rate = (trainer.global_step - self.first_step) * self.units_per_step / (now - self.began)
        metrics = trainer.callback_metrics
        formats = {"train_loss": (1, "loss {:.3f}"), "train_accuracy": (100, "accuracy {:.1f} %")}
        values = [text.format(by * metrics[name].item()) for name, (by, text) in formats.items() if name in metrics]
        numbers = "  ".join([*values, f"{rate:.1f} {self.unit}s/s"])
        self.progress.update(self.task, completed=trainer.global_step, numbers=numbers)
        if not self.console.is_terminal:
            say(self.console, f"step {trainer.global_step}/{trainer.max_steps}  {numbers}")

    def on_train_end(self, *_: Any) -> None:
        """Leave the bar as it is."""
        if self.console.is_terminal:
            self.progress.stop()

    def on_exception(self, *_: Any) -> None:
        """Leave the bar as it is, so that the error stands below it."""
        self.on_train_end()


def _loggers(run: Run) -> list[Any]:
    """TensorBoard's where it is installed; a continued run adds a new version beside the old ones."""
    if not importlib.util.find_spec("tensorboard"):
        return []
    from pytorch_lightning.loggers import TensorBoardLogger

    return [TensorBoardLogger(run.path, name="tensorboard")]


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Lightning's advice about loaders and devices is of no use on the command line."""
    logger = logging.getLogger("pytorch_lightning")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
            warnings.filterwarnings("ignore", message=".*(ckpt_path|resuming|dataloader|num_workers|srun).*")
            # Recording leaves them of another stream, which PyTorch waits for.
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream does not match")
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _explained(run: Run, checkpoints: Checkpoints, resume: bool) -> Iterator[None]:
    """What stops a training, as one sentence that says how to continue."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as end:  # a second signal; Lightning answers with an exit
        if not checkpoints.stop_signal:
            raise
        raise Interrupted(
            f"Stopped at once. Continue from the last checkpoint with {run.resume_command}.", checkpoints.stop_signal
        ) from end
    except BrokenPipeError:
        raise
    except (OSError, StorageError) as error:
        fault = str(error) if isinstance(error, StorageError) else f"Cannot write to {run.path}: {reason(error)}."
        if resume or checkpoints.started or (run.path / "config.json").is_file():
            advice = f"What was saved before is intact: fix this and continue with {run.resume_command}."
        else:
            advice = "Nothing was trained yet: fix this and start again."
        raise StorageError(f"{fault.rstrip('.')}. {advice}") from error
    except FSLSTMError:
        raise
    except Exception as error:  # torch, pickle and Lightning raise many types, as checkpoints can be damaged anyhow
        if "DataLoader worker" in str(error):  # PyTorch interrupts the training wherever it is
            raise RunError(
                "A process that decodes images was killed, perhaps for want of memory. What was saved before is "
                f"intact: continue with {run.resume_command}, perhaps with fewer `workers`."
            ) from error
        if not resume or checkpoints.started or is_out_of_memory(error):
            raise
        raise _damaged(run, without_advice(str(error)).partition("\n")[0] or type(error).__name__) from error


def _damaged(run: Run, fault: str) -> RunError:
    return RunError(
        f"The training cannot continue from {run.checkpoint}, which is damaged or of another training ({fault}): "
        "start a new run."
    )


def _require_files(run: Run) -> None:
    """Refuse a folder, or anything else that is not replaced, where the training will write a file."""
    for file in (run.checkpoint, run.weights, run.path / "metrics.csv"):
        if file.exists() and not file.is_file() and not file.is_symlink():
            raise RunError(f"{file} is no regular file, and is not replaced: move it away, or start a new run.")


def is_first() -> bool:
    """Whether this process is the first, or the only one, of those that train together."""
    return getattr(rank_zero_only, "rank", 0) == 0


@dataclass(frozen=True)
class EngineOptions:
    """Options of Lightning's Trainer, and the steps between two checkpoints; by default a minute is between them."""

    accelerator: str = "auto"
    devices: int | str = "auto"
    num_nodes: int = 1
    strategy: str = "auto"
    checkpoint_every: int | None = None


def fit(
    module: Replayable,
    batches: Any,
    run: Run,
    *,
    max_steps: int,
    options: EngineOptions,
    progress: TrainingProgress,
    callbacks: Sequence[pl.Callback] = (),
    resume: bool = False,
    data_digest: str = "",
) -> None:
    """Train for ``max_steps`` optimiser steps in all, or continue up to there.

    The batches are those of one epoch: they have a length, and begin at the module's global step. The run folder takes
    checkpoints and metrics; it is made, unless ``resume`` continues from its last checkpoint. Further callbacks run
    before the checkpoint is written, which keeps a digest that identifies the images.

    Raises:
        UsageError: If Lightning does not know, or cannot have, the accelerator, devices or strategy, or a step
            cannot be shared equally by the devices.
        Interrupted: If the user stopped the training; the state is saved.
        NonFiniteError: If the loss or a weight is not a number.
        StorageError: If the run folder cannot be written, for example because the disk is full.
        RunError: If the run folder holds another run or was replaced, another training runs in it, a folder is in the
            place of one of its files, its checkpoint is damaged, or the configuration or images are not those that the
            checkpoint was made with.
    """
    metrics = Metrics(run)
    checkpoints = Checkpoints(run, metrics, options.checkpoint_every)
    storage = WholeCheckpoints(run)
    with _quiet_lightning(), listening(checkpoints.request_stop):
        forget_stale()
        if "LOCAL_RANK" not in os.environ and "SLURM_PROCID" not in os.environ:
            setattr(rank_zero_only, "rank", 0)  # noqa: B010 - mypy; Lightning took it from a variable that is stale
        try:
            trainer = pl.Trainer(
                accelerator=options.accelerator,
                devices=options.devices,
                num_nodes=options.num_nodes,
                strategy=options.strategy,
                precision={"32": "32-true", "bf16": "bf16-mixed"}[run.config.precision],  # type: ignore[arg-type]
                max_steps=max_steps,
                limit_train_batches=len(batches),
                callbacks=[StepSeed(run.config.seed), FiniteLoss(), *callbacks, metrics, progress, checkpoints],
                logger=_loggers(run),
                plugins=[storage],
                log_every_n_steps=max(1, min(50, len(batches) // 10)),
                default_root_dir=run.path,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
            )
        except (ValueError, RuntimeError, MisconfigurationException) as error:  # RuntimeError of SLURM's variables
            if is_out_of_memory(error):
                raise
            raise UsageError(f"Lightning cannot train like this: {' '.join(str(error).split())}") from error
        if progress.units_per_step % trainer.world_size:
            raise UsageError(
                f"{count_of(progress.units_per_step, progress.unit)} per step cannot be shared equally by "
                f"{trainer.world_size} devices."
            )
        first = is_first()
        with _explained(run, checkpoints, resume), run.held() if first else nullcontext():
            _require_files(run)
            if first and not resume:
                run.create()
            if first or resume:
                storage.origin = _origin(run, data_digest)
            # A run that was stopped before its first checkpoint begins again.
            checkpoint = run.checkpoint if resume and run.checkpoint.is_file() else None
            if first and resume and checkpoint is None:
                say(progress.console, f"{run.path} has no checkpoint: the training starts from the beginning.")
            module.to(memory_format=torch.channels_last)
            if trainer.world_size == 1 and trainer.strategy.root_device.type == "cuda":
                module.replay()
            trainer.fit(module, batches, ckpt_path=checkpoint, weights_only=True)
            if checkpoints.stop_signal:  # during the last step, or after it
                raise checkpoints.stopped(trainer)
            if first and not checkpoints.started:
                say(progress.console, f"{run.path} is fully trained: nothing was left to do.")
