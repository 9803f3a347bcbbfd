"""Outcomes of methods kept beside their run, so that an evaluation that was interrupted goes on."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from ..data.base import Split
from ..errors import RunError, StorageError, UsageError, reason
from ..evaluation.runner import Outcome
from ..evaluation.session import RunSession
from ..evaluation.setting import Setting
from ..methods.base import Method
from ..model import FewShotModel
from ..reporting.words import listed
from ..runs.folder import Run
from ..storage.files import exclusive, prune, subfolder
from ..storage.plain import from_plain, to_plain
from ..storage.weights import checksum, load_described, save_tensors
from .measurements import Provenance

Found = tuple[Outcome, Provenance]

_EPISODES = 64  # Answered before they are kept; twice as many again and again, while they take less than so long:
_SECONDS = 60.0


@dataclass(frozen=True)
class OutcomeStore:
    """What methods did in episodes, a file for each in the run's ``cache``; for this code on this machine alone.

    A file is written again as its method goes on, so that no more than some minutes are lost.
    """

    run: Run
    model: FewShotModel  # The run's as it was loaded, since a training may write other weights meanwhile.
    split: Split  # Where the episodes come from.
    device: torch.device  # Where they are computed.
    where: Provenance  # The code and the machine, kept with what is measured now.
    # Called with a sentence on how far a long measurement is, and if a file cannot be kept.
    note: Callable[[str], None] = lambda sentence: None

    def measure(
        self,
        session: RunSession,
        methods: Mapping[str, Method],
        setting: Setting,
        batch_episodes: int | None,
        resume: bool,
    ) -> dict[str, Found]:
        """Outcomes of methods by the names that the files know them by, each with where it was measured.

        To resume is to take the outcomes that are there, and to continue those in some of the episodes.
        """
        nothing = torch.empty(0, dtype=torch.float64)
        found = {
            name: (self._read(name, setting, method) if resume else None)
            or (Outcome(method, nothing, nothing, 0.0), self.where)
            for name, method in methods.items()
        }
        names = {id(method): name for name, method in methods.items()}

        def answered(name: str) -> int:
            return len(found[name][0].accuracies)

        for group in session.by_pass(list(methods.values())):
            for _, alike in groupby(sorted((names[id(method)] for method in group), key=answered), answered):
                self._finish(session, found, list(alike), setting, batch_episodes)
        return found

    def _finish(
        self,
        session: RunSession,
        outcomes: dict[str, Found],
        names: Sequence[str],
        setting: Setting,
        batch_episodes: int | None,
    ) -> None:
        """What methods do in the episodes that are left, the same for all of them, is added to what is found."""
        methods = [outcomes[name][0].method for name in names]
        done, block = len(outcomes[names[0]][0].accuracies), _EPISODES
        while done < setting.episodes:
            began = time.monotonic()
            episodes = range(done, min(done + block, setting.episodes))
            for name, measured in zip(
                names, session.measure(methods, setting, batch_episodes, episodes=episodes), strict=True
            ):
                outcome = outcomes[name][0].then(measured.outcome)
                outcomes[name] = outcome, self.where
                self._write(name, setting, outcome)
            done = episodes.stop
            if time.monotonic() - began < _SECONDS:
                block *= 2
            elif done < setting.episodes:
                self.note(f"{listed(names)}: {done:,} of {setting.episodes:,} episodes.")

    def answered(self, name: str, setting: Setting) -> int:
        """In how many of a setting's episodes a method's answers are there."""
        found = self._load(name, setting)
        return 0 if found is None else len(found[0]["accuracies"])

    def _read(self, name: str, setting: Setting, method: Method) -> Found | None:
        found = self._load(name, setting)
        if found is None:
            return None
        tensors, texts = found
        outcome = Outcome(method, tensors["accuracies"], tensors["share_errors"], tensors["seconds"].item())
        return outcome, from_plain(Provenance, json.loads(texts["provenance"]))

    def _load(self, name: str, setting: Setting) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """What a file holds; None if there is none, or it is damaged."""
        file = self._file(name, setting)
        try:
            return load_described(file) if file.is_file() else None
        except RunError:
            return None

    def _write(self, name: str, setting: Setting, outcome: Outcome) -> None:
        tensors = {
            "accuracies": outcome.accuracies,
            "share_errors": outcome.share_errors,
            "seconds": torch.tensor(outcome.seconds, dtype=torch.float64),
        }
        file = self._file(name, setting)
        try:
            with exclusive(subfolder(self.run.path, "cache")):
                if self.answered(name, setting) > len(outcome.accuracies):
                    return  # by another process, which is further
                save_tensors(file, tensors, {"provenance": json.dumps(to_plain(self.where))})
                if len(outcome.accuracies) == setting.episodes:  # Till then, what other code measured stays.
                    prune(file.parent, keep=file, pattern=f"{self._stem(name, setting)}-*.safetensors")
        except (StorageError, UsageError, OSError) as error:
            self.note(f"The outcome of {name} is not kept: {reason(error).rstrip('.')}.")

    def _file(self, name: str, setting: Setting) -> Path:
        return self.run.path / "cache" / f"{self._stem(name, setting)}-{self._made_by}.safetensors"

    def _stem(self, name: str, setting: Setting) -> str:
        return f"{self.split.dataset}-{self.split.name}-outcome-{_digest(repr((name, astuple(setting))).encode())}"

    @cached_property
    def _made_by(self) -> str:
        """Digest of what an outcome depends on: weights, images, code, and, in its last digits, the machine."""
        where = self.where
        code = where.version, _code(), torch.__version__
        words = repr((self.split.digest, *code, where.hardware, self.device.type))
        return _digest((checksum(self.model.state_dict()) + words).encode())


@cache
def _code() -> str:
    """Digest of this package's code, also of changes that no commit has."""
    package = Path(__file__).resolve().parents[1]
    return _digest(b"".join(file.read_bytes() for file in sorted(package.rglob("*.py"))))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
