# %% [markdown]
# # Transductive methods compared
#
# Two tables and a figure: what transductive methods gain where the queries are
# balanced, and how much of it remains where they are not. The features are those of
# [the first notebook](heads.md); on a run the command is `fslstm compare`.

# %%
import numpy as np
import torch
from fslstm_plugin import parse_method
from fslstm_plugin.evaluation.runner import indexed, run_methods
from fslstm_plugin.evaluation.setting import Setting
from fslstm_plugin.evaluation.statistics import estimate, estimate_to_the_best
from matplotlib import pyplot as plt

from glyph_features import glyph_features

test, features, base_mean = glyph_features()
names = [
    "lssvm",
    "lssvm+psm",
    "lssvm+psm(prior=tested)",
    "lssvm+can",
    "laplacian-shot",
    "tim",
    "pt-map(negative=signed)",
]
methods = [parse_method(name) for name in names]


def accuracies(balance):
    """Percent of each method in the same 200 episodes: (methods, episodes)."""
    setting = Setting(
        ways=5, shots=1, queries=15, episodes=200, query_balance=balance
    )
    outcomes = run_methods(
        indexed(features, base_mean=base_mean),
        setting.sampler(test),
        methods,
        setting.episodes,
    )
    return torch.stack([outcome.accuracies for outcome in outcomes])


# %% [markdown]
# ## Balanced queries
#
# There are 15 queries of each class. The last column is the difference to the best
# method of the table, with an interval that accounts for its selection by the same
# numbers.


# %%
def table(values):
    print(f"{'':<24} {'accuracy':>12} {'over lssvm':>14} {'to the best':>14}")
    for name, each, to_best in zip(
        names, values, estimate_to_the_best(values), strict=True
    ):
        columns = estimate(each), estimate(each - values[0]), to_best
        texts = [f"{mean:8.1f} ± {ci95:4.1f}" for mean, ci95 in columns]
        print(f"{name:<24}", *texts, sep="")


balanced = accuracies("uniform")
table(balanced)

# %% [markdown]
# The intervals of the gains are paired: every method sees the same episodes, so
# that what makes an episode hard for all of them cancels. That of PSM, which
# follows the head, is half as wide as that of its accuracy.
#
# ## Queries that are not balanced
#
# The total number of queries stays the same; their shares are drawn from a
# Dirichlet distribution with parameter 1 for each episode.

# %%
unbalanced = accuracies("dirichlet:1")
table(unbalanced)

# %% [markdown]
# TIM and PT-MAP, which assume equal shares, are now far below the head without
# transduction; a test of the balance (`prior=tested`) keeps PSM from that.

# %%
figure, panel = plt.subplots(figsize=(5.2, 3), layout="constrained")
rows = np.arange(len(names) - 1)
for shift, marker, label, values in (
    (-0.12, "o", "balanced", balanced),
    (0.12, "s", "Dirichlet 1", unbalanced),
):
    means, errors = zip(
        *(estimate(each - values[0]) for each in values[1:]), strict=True
    )
    panel.errorbar(
        means,
        rows + shift,
        xerr=errors,
        fmt=marker,
        markersize=4,
        capsize=2,
        label=label,
    )
panel.axvline(0, color="black", linewidth=0.8)
panel.set_yticks(rows, names[1:])
panel.invert_yaxis()
panel.set_xlabel("gain over lssvm in points, with 95 % intervals")
panel.legend(frameon=False)
plt.show()

# %% [markdown]
# [Transduction, and when it hurts](../guides/transduction.md) says what each method
# assumes.
