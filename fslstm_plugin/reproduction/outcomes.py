"""Outcomes of methods kept beside their run, so that an evaluation that was interrupted goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path

import torch

from ..data.base import Split
from ..errors import RunError, StorageError
from ..evaluation.runner import Outcome
from ..evaluation.session import RunSession
from ..evaluation.setting import Setting
from ..files import prune, subfolder
from ..methods import Method
from ..plain import from_plain, to_plain
from ..runs import Run
from ..weights import load_described, save_tensors
from .measurements import Provenance

Found = tuple[Outcome, Provenance]


@dataclass(frozen=True)
class OutcomeStore:
    """What methods did in episodes, a file for each in the run's ``cache``; for this code on this machine alone.

    Args:
        run: The run.
        split: Where the episodes come from.
        device: Where they are computed.
        where: The code and the machine, kept with what is measured now.
        note: Called with a sentence if a file cannot be kept, which is not an error.
    """

    run: Run
    split: Split
    device: torch.device
    where: Provenance
    note: Callable[[str], None] = lambda sentence: None

    def measure(
        self,
        session: RunSession,
        methods: Mapping[str, Method],
        setting: Setting,
        batch_episodes: int | None = None,
        resume: bool = False,
    ) -> dict[str, Found]:
        """Outcomes of methods by name, each with where it was measured.

        Args:
            session: Of the run and the split.
            methods: Methods of the session by the names that the files know them by.
            setting: The episodes.
            batch_episodes: See `run_methods`.
            resume: Whether outcomes that are there are taken.
        """
        there = {name: self._read(name, method, setting) for name, method in methods.items()} if resume else {}
        found = {name: each for name, each in there.items() if each is not None}
        names = {id(method): name for name, method in methods.items() if name not in found}
        for group in session.by_pass([method for method in methods.values() if id(method) in names]):
            for measured in session.measure(group, setting, batch_episodes):
                name = names[id(measured.method)]
                found[name] = measured.outcome, self.where
                self._write(name, setting, measured.outcome)
        return {name: found[name] for name in methods}

    def has(self, name: str, setting: Setting) -> bool:
        """Whether a method's outcome is there."""
        return self._file(name, setting).is_file()

    def _read(self, name: str, method: Method, setting: Setting) -> Found | None:
        file = self._file(name, setting)
        if not file.is_file():
            return None
        try:
            tensors, texts = load_described(file)
        except RunError:
            return None
        outcome = Outcome(method, tensors["accuracies"], tensors["share_errors"], tensors["seconds"].item())
        return outcome, from_plain(Provenance, json.loads(texts["provenance"]))

    def _write(self, name: str, setting: Setting, outcome: Outcome) -> None:
        tensors = {
            "accuracies": outcome.accuracies,
            "share_errors": outcome.share_errors,
            "seconds": torch.tensor(outcome.seconds, dtype=torch.float64),
        }
        file = self._file(name, setting)
        try:
            subfolder(self.run.path, "cache")
            save_tensors(file, tensors, {"provenance": json.dumps(to_plain(self.where))})
            prune(file.parent, keep=file, pattern=f"{self._stem(name, setting)}-*.safetensors")
        except StorageError as error:
            self.note(f"The outcome of {name} is not kept: {error}")

    def _file(self, name: str, setting: Setting) -> Path:
        return self.run.path / "cache" / f"{self._stem(name, setting)}-{self._made_by}.safetensors"

    def _stem(self, name: str, setting: Setting) -> str:
        return f"{self.split.dataset}-{self.split.name}-outcome-{_digest(repr((name, astuple(setting))).encode())}"

    @cached_property
    def _made_by(self) -> str:
        """Digest of what an outcome depends on: weights, images, code, and, in its last digits, the machine."""
        where = self.where
        code = where.version, where.commit, torch.__version__
        words = repr((self.split.digest, *code, where.hardware, self.device.type))
        return _digest(self.run.weights.read_bytes() + words.encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
