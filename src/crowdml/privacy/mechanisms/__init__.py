"""Noise laws by name. A new one is a file beside these and a line below."""

from crowdml.core import Registry
from crowdml.privacy.mechanisms.contract import Bound as Bound
from crowdml.privacy.mechanisms.contract import Mechanism as Mechanism
from crowdml.privacy.mechanisms.contract import NoiseLaw as NoiseLaw
from crowdml.privacy.mechanisms.contract import add_noise as add_noise
from crowdml.privacy.mechanisms.contract import calibrated as calibrated
from crowdml.privacy.mechanisms.contract import clip_weights as clip_weights
from crowdml.privacy.mechanisms.discrete_gaussian import DISCRETE_GAUSSIAN as DISCRETE_GAUSSIAN
from crowdml.privacy.mechanisms.discrete_laplace import DISCRETE_LAPLACE as DISCRETE_LAPLACE
from crowdml.privacy.mechanisms.gaussian import GAUSSIAN as GAUSSIAN
from crowdml.privacy.mechanisms.k_norm import K_NORM as K_NORM
from crowdml.privacy.mechanisms.laplace import LAPLACE as LAPLACE

MECHANISMS: Registry[NoiseLaw] = Registry(
    "mechanism",
    {
        "laplace": LAPLACE,
        "gaussian": GAUSSIAN,
        "k-norm": K_NORM,
        "discrete-laplace": DISCRETE_LAPLACE,
        "discrete-gaussian": DISCRETE_GAUSSIAN,
    },
)
