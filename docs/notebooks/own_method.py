# %% [markdown]
# # A method of your own
#
# Anything that classifies the queries of an episode is a `Method` with one
# function, `logits`. This is `soft_k_means.py`, a transductive method in 15 lines:
#
# ```python
# --8<-- "docs/notebooks/soft_k_means.py"
# ```
#
# ## Check it
#
# `check_method` tries what training and evaluation rely on: shapes and batches,
# that the order of support, queries and classes does not matter, precisions,
# gradients, saving and loading, and whether it is as transductive as it says.

# %%
from fslstm_plugin.testing import check_method

from soft_k_means import SoftKMeans

check_method(SoftKMeans)
check_method(lambda: SoftKMeans(steps=10))

# %% [markdown]
# It prints nothing where all is well. A method that claims to treat each query
# separately, but does not, is detected:


# %%
class Claiming(SoftKMeans):
    is_transductive = False


try:
    check_method(Claiming)
except AssertionError as error:
    print(error)

# %% [markdown]
# ## Give it a name
#
# The entry point of a package gives a method its name. With `pip install` of a
# package whose `pyproject.toml` has
#
# ```toml
# [project.entry-points."fslstm_plugin.methods"]
# soft-k-means = "soft_k_means:SoftKMeans"
# ```
#
# every command knows `soft-k-means`. Here the same line is written where pip would
# write it:

# %%
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import soft_k_means

site = Path(tempfile.mkdtemp())
shutil.copy(soft_k_means.__file__, site)
(site / "soft_k_means-1.0.dist-info").mkdir()
(site / "soft_k_means-1.0.dist-info" / "entry_points.txt").write_text(
    "[fslstm_plugin.methods]\nsoft-k-means = soft_k_means:SoftKMeans\n"
)

# %% [markdown]
# ## Compare it
#
# On features in a file, from the command line, with arguments like any other
# method:

# %%
import numpy as np
from sklearn.datasets import load_digits

X, y = load_digits(return_X_y=True)
np.savez(site / "digits.npz", features=(X - X.mean()) / X.std(), labels=y)

methods = ["nn", "soft-k-means", "soft-k-means(steps=10)", "lssvm"]
options = ["--features", "digits.npz", "--shots", "1", "--episodes", "300"]
environment = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
}
done = subprocess.run(
    [sys.executable, "-m", "fslstm_cli", "compare", *methods, *options],
    cwd=site,
    env=environment,
    capture_output=True,
    text=True,
)
print(done.stdout or done.stderr)

# %% [markdown]
# [Your own backbone, head or method](../guides/parts.md) has the other kinds of
# parts, and methods with weights that are trained.
