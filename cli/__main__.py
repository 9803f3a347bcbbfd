"""``python -m fslstm_cli`` is ``fslstm``."""

from .process import start

start()
