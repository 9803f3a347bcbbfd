"""What the tests of the commands on a user's own pictures share: painted ones, and a classifier of them."""

from __future__ import annotations

from pathlib import Path

import painted
import pytest


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Options of a small backbone."""
    return painted.backbone(tmp_path)


@pytest.fixture
def model(succeed, tmp_path: Path, small) -> Path:
    """A classifier of three colours, fitted to the pictures in ``labelled``."""
    file = tmp_path / "colours.fslstm"
    succeed("fit", painted.labelled(tmp_path / "labelled"), "-o", file, "--method", "lssvm(normalize)", *small)
    return file


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Other pictures of the same colours."""
    return painted.unlabelled(tmp_path / "new")
