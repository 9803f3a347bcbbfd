"""The packages; everything else is in pyproject.toml.

Two of them are in folders of other names, so that the wheel has no modules ``cli`` and ``reproductions``; with these
listed in pyproject.toml, the others could not be found automatically.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["fslstm_plugin", "fslstm_plugin.*"]), "fslstm_cli", "fslstm_reproductions"],
    package_dir={"fslstm_cli": "cli", "fslstm_reproductions": "reproductions"},
)
