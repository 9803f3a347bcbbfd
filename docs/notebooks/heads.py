# %% [markdown]
# # Heads and PSM on one episode
#
# An episode is a small classification task: here five letters that are unknown to
# the features, one labelled image of each, and 15 queries of each. This
# notebook fits heads to it and shows what the Pseudo Support Module (PSM) adds.
#
# The features need no training of a network: they are the edges of an image after
# a linear discriminant analysis of the *base* classes of `glyphs`, computed by
# `glyph_features.py`:
#
# ```python
# --8<-- "docs/notebooks/glyph_features.py"
# ```
#
# ## The episode

# %%
import torch
from fslstm_plugin import EpisodeFeatures, parse_method
from fslstm_plugin.evaluation.setting import Setting
from fslstm_plugin.transduction import PseudoSupportModule
from matplotlib import pyplot as plt

from glyph_features import glyph_features

test, features, base_mean = glyph_features()
episodes = Setting(ways=5, shots=1, queries=15, seed=0).sampler(test)
images = episodes.batch(start=0, count=1)[
    0
]  # of the first episode: 5 of the support, 75 queries
query_labels = episodes.query_labels(start=0, count=1)[0]

figure, panels = plt.subplots(2, 5, figsize=(5, 2.4), layout="constrained")
for label in range(5):
    name = test.class_names[test.labels[images[label]]].split()[-1]
    panels[0, label].imshow(test.images[images[label]].numpy())
    panels[0, label].set_title(name, fontsize=9)
    panels[1, label].imshow(test.images[images[5 + 15 * label]].numpy())
for panel in panels.flat:
    panel.set(xticks=[], yticks=[])
panels[0, 0].set_ylabel("support", fontsize=9)
panels[1, 0].set_ylabel("a query", fontsize=9)
plt.show()

# %% [markdown]
# ## Heads
#
# A method is parsed from its name, and gives logits for the queries of an episode.
# All of them share the Gram matrix.

# %%
points = features[images]
episode = EpisodeFeatures(
    points[:5], points[5:], episodes.labels[:5], base_mean=base_mean
)


def accuracy(logits):
    return 100 * (logits.argmax(-1) == query_labels).double().mean().item()


for name in ("nn", "rr", "svm", "lssvm", "lssvm+psm", "lssvm+can"):
    print(f"{name:<10} {accuracy(parse_method(name).logits(episode)):5.1f} %")

# %% [markdown]
# One episode says little: two heads differ by a few queries here.
# [Transductive methods compared](transduction.md) takes 200 episodes, with
# intervals.
#
# ## What PSM does
#
# PSM predicts the queries, appends the average query of each predicted class to the
# support, and fits the head again. Its `trajectory` has the logits after each of
# these iterations.

# %%
lssvm = parse_method("lssvm").head
logits = PseudoSupportModule(iterations=3).trajectory(
    lssvm, episode.gram, episode.targets
)
for iteration, each in enumerate(logits):
    print(f"k = {iteration}: {accuracy(each):5.1f} %")

# %% [markdown]
# In the plane of the two principal components the averages (stars) lie among the
# queries of their class, where a single labelled image (ring) may lie at their
# edge. Queries that the plain head predicts wrongly are crosses.

# %%
predicted = logits[0].argmax(-1)
averages = torch.stack(
    [points[5:][predicted == label].mean(0) for label in range(5)]
)
centre = points.mean(0)
plane = torch.linalg.svd(points - centre, full_matrices=False).Vh[:2].mT
place, average_place = (points - centre) @ plane, (averages - centre) @ plane

figure, panel = plt.subplots(figsize=(5, 3.6), layout="constrained")
for label, colour in enumerate(
    ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
):
    of_class = query_labels == label
    for marker, chosen in (
        ("o", of_class & (predicted == label)),
        ("x", of_class & (predicted != label)),
    ):
        panel.scatter(
            *place[5:][chosen].mT, s=14, color=colour, marker=marker, alpha=0.7
        )
    panel.scatter(
        *place[label], s=90, facecolors="none", edgecolors=colour, linewidths=2
    )
    panel.scatter(
        *average_place[label],
        s=130,
        color=colour,
        marker="*",
        edgecolors="black",
        linewidths=0.7,
    )
panel.set(xticks=[], yticks=[], xlabel="first principal component", ylabel="second")
plt.show()

# %% [markdown]
# [PSM with weights](../mathematics/psm.md) has the mathematics: an average is a row
# of weights in front of the Gram matrix.
