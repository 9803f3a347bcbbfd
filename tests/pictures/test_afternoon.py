"""A person's afternoon by the commands: every label ends right, for far fewer labels than pictures."""

from __future__ import annotations

from pathlib import Path

import afternoon
import painted


def test_all_labels_end_right(succeed, tmp_path: Path) -> None:
    folder = painted.labelled(tmp_path / "pictures", each=24)
    truth = {path: path.parent.name for path in sorted(folder.rglob("*.png"))}
    (tmp_path / "play").mkdir()
    done = afternoon.play(succeed, truth, tmp_path / "play", each=4, part=20, options=painted.backbone(tmp_path))
    assert (done.pictures, done.first) == (60, 12)
    assert done.corrected <= round((1 - done.accuracy) * 60) + 3  # an update can also make a label wrong
    assert done.corrected + done.first < 30
    assert done.wrong <= 0.05 * 60
