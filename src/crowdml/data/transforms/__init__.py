"""Transforms: what happens to rows before a model sees them, as lines of a task file."""

from __future__ import annotations

from crowdml.core.registry import Registry
from crowdml.data.transforms.chain import apply_all as apply_all
from crowdml.data.transforms.chain import compose as compose
from crowdml.data.transforms.chain import fit_all as fit_all
from crowdml.data.transforms.chain import fit_rows as fit_rows
from crowdml.data.transforms.chain import input_bound as input_bound
from crowdml.data.transforms.columns import Intercept as Intercept
from crowdml.data.transforms.columns import OneHot as OneHot
from crowdml.data.transforms.columns import Scale as Scale
from crowdml.data.transforms.columns import ScaleColumns as ScaleColumns
from crowdml.data.transforms.columns import Standardise as Standardise
from crowdml.data.transforms.random_features import RandomFeatures as RandomFeatures
from crowdml.data.transforms.scattering import Scattering as Scattering
from crowdml.data.transforms.transform import Bounds as Bounds
from crowdml.data.transforms.transform import Fitted as Fitted
from crowdml.data.transforms.transform import Transform as Transform
from crowdml.data.transforms.whole_rows import Fft as Fft
from crowdml.data.transforms.whole_rows import Norm as Norm
from crowdml.data.transforms.whole_rows import Pca as Pca

TRANSFORMS: Registry[type[Transform]] = Registry(
    "transform",
    {
        "scale": Scale,
        "scale-columns": ScaleColumns,
        "norm": Norm,
        "standardise": Standardise,
        "pca": Pca,
        "intercept": Intercept,
        "fft": Fft,
        "one-hot": OneHot,
        "random-features": RandomFeatures,
        "scattering": Scattering,
    },
)
