"""Features of the data set glyphs: edges, seen by Fisher's linear discriminants."""

import torch
from fslstm_plugin.data.root import load_split
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch.nn.functional import avg_pool2d


def edges(images):
    """Edges of images (N, 32, 32, 3) in 4 directions and 9 x 9 places (N, 324)."""
    grey = images.float().mean(-1)
    grey = (grey - grey.mean((1, 2), keepdim=True)) / grey.std((1, 2), keepdim=True)
    across, down = (
        grey[:, 1:, 1:] - grey[:, 1:, :-1],
        grey[:, 1:, 1:] - grey[:, :-1, 1:],
    )
    maps = torch.stack([across, down, across + down, across - down], 1).abs()
    return avg_pool2d(maps, kernel_size=5, stride=3).flatten(1)


def glyph_features():
    """The test split, its features (6000, 63), and the base classes' mean (63,)."""
    base, test = load_split("glyphs", "train"), load_split("glyphs", "test")
    seen, labels = (
        edges(base.images[::4]),
        base.labels[::4],
    )  # 75 images of each base class are enough
    discriminant = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1).fit(
        seen, labels
    )
    features, mean = (
        discriminant.transform(edges(test.images)),
        discriminant.transform(seen).mean(0),
    )
    return test, torch.from_numpy(features).float(), torch.from_numpy(mean).float()
