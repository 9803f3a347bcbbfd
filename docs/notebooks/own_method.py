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
# A registered method has a name, with arguments like any other's:

# %%
from fslstm_plugin.registry import METHODS

METHODS.register("soft-k-means", SoftKMeans)

# %% [markdown]
# ## Compare it
#
# On the same episodes as the others, here of the 64 pixels of scikit-learn's
# digits:

# %%
from fslstm_plugin import evaluate
from sklearn.datasets import load_digits

X, y = load_digits(return_X_y=True)
methods = ["nn", "soft-k-means", "soft-k-means(steps=10)", "lssvm"]
for row in evaluate((X - X.mean()) / X.std(), y, methods, shots=1, episodes=300):
    print(f"{row.method:24s} {row.accuracy:.2f} ± {row.ci95:.2f} %")

# %% [markdown]
# The command line knows the methods of installed packages. With `pip install` of
# one whose `pyproject.toml` has
#
# ```toml
# [project.entry-points."fslstm_plugin.methods"]
# soft-k-means = "soft_k_means:SoftKMeans"
# ```
#
# `fslstm compare nn soft-k-means` works.
#
# [Your own backbone, head or method](../guides/parts.md) has the other kinds of
# parts, and methods with weights that are trained.
