"""``python -m fslstm_cli`` is ``fslstm``."""

from .main import run

run()
