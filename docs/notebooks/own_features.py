# %% [markdown]
# # Your own features, probabilities and prediction sets
#
# `FewShotClassifier` takes any matrix of features. Here these are the 64 pixels of
# scikit-learn's digits; 5 images of each digit are labelled.

# %%
import numpy as np
from fslstm_plugin import FewShotClassifier
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

X, y = load_digits(return_X_y=True)


def drawn(seed):
    """5 labelled images of each digit, and 500 others."""
    order = np.random.default_rng(seed).permutation(len(y))
    labelled = np.concatenate([order[y[order] == digit][:5] for digit in range(10)])
    return labelled, np.setdiff1d(order, labelled, assume_unique=True)[:500]


labelled, new = drawn(seed=0)
classifier = FewShotClassifier("lssvm(ridge=loo)").fit(X[labelled], y[labelled])
print(f"correctly predicted: {100 * classifier.score(X[new], y[new]):.1f} %")

# %% [markdown]
# ## Are the probabilities right?
#
# A temperature turns logits into probabilities. It is fitted to the labelled
# images, each left out in turn, so that no validation images are needed. Of the
# predictions made with 70 % probability, 70 % should be correct. Here are 20 draws
# of labelled images, with and without that temperature.

# %%
draws = [drawn(seed) for seed in range(20)]
figure, panel = plt.subplots(figsize=(3.6, 3.2), layout="constrained")
for temperature, label, marker in (
    (1.0, "temperature 1", "s"),
    ("leave-one-out", "fitted temperature", "o"),
):
    sure, right = [], []
    for labelled, new in draws:
        fitted = FewShotClassifier("lssvm(ridge=loo)", temperature=temperature).fit(
            X[labelled], y[labelled]
        )
        likely = fitted.predict_proba(X[new])
        sure.append(likely.max(-1))
        right.append(fitted.classes_[likely.argmax(-1)] == y[new])
    sure, right = np.concatenate(sure), np.concatenate(right)
    bins = np.minimum((10 * sure).astype(int), 9)
    filled = [number for number in range(10) if (bins == number).sum() >= 50]
    believed = [sure[bins == number].mean() for number in filled]
    correct = [right[bins == number].mean() for number in filled]
    panel.plot(believed, correct, marker=marker, markersize=4, label=label)
    means = 100 * sure.mean(), 100 * right.mean()
    print(f"{label}: {means[0]:.1f} % sure on average, {means[1]:.1f} % correct")
panel.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
panel.set(
    xlabel="probability of the prediction",
    ylabel="correctly predicted",
    aspect="equal",
)
panel.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# ## Sets that contain the true label as often as guaranteed
#
# A prediction set says more than a probability: the share of the sets that contain
# the true label is guaranteed for each digit, however bad the features are. Worse
# features give larger sets. The predicted label is in each set, so that a low
# coverage is exceeded. The guarantee is on average over draws of labelled
# images; with 5 of each digit it goes in steps of a sixth.

# %%
print("guaranteed  covered  labels in a set")
for coverage in (3 / 6, 4 / 6, 5 / 6):
    held, sizes = [], []
    for labelled, new in draws:
        fitted = FewShotClassifier("lssvm(ridge=loo)").fit(X[labelled], y[labelled])
        sets = fitted.predict_set(X[new[:100]], coverage=coverage)
        held += [
            label in each for label, each in zip(y[new[:100]], sets, strict=True)
        ]
        sizes += [len(each) for each in sets]
    covered = 100 * np.mean(held)
    print(f"{100 * coverage:8.0f} % {covered:6.1f} % {np.mean(sizes):10.2f}")

# %% [markdown]
# The first sets of the last draw that contain more than one label:

# %%
unclear = [number for number, each in enumerate(sets) if len(each) != 1][:5]
figure, panels = plt.subplots(
    1, len(unclear), figsize=(5, 1.4), layout="constrained"
)
for panel, number in zip(panels, unclear, strict=True):
    panel.imshow(X[new[number]].reshape(8, 8), cmap="gray_r")
    panel.set(xticks=[], yticks=[])
    panel.set_title(" ".join(map(str, sets[number])), fontsize=8)
plt.show()

# %% [markdown]
# [Prediction sets](../mathematics/conformal.md) proves the guarantee, and
# says what it does not cover. [Your own pictures](../guides/pictures.md) does the
# same from folders of pictures.
