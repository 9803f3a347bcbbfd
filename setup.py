"""Which packages there are; everything else is in pyproject.toml.

Two of them lie in folders of other names, so that the wheel does not bring modules ``cli`` and ``reproductions``; next
to such a list, pyproject.toml could not have the others found.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["fslstm_plugin", "fslstm_plugin.*"]), "fslstm_cli", "fslstm_reproductions"],
    package_dir={"fslstm_cli": "cli", "fslstm_reproductions": "reproductions"},
)
