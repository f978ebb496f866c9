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
from crowdml.privacy.mechanisms.response import RandomisedResponse as RandomisedResponse
from crowdml.privacy.mechanisms.skellam import SKELLAM as SKELLAM
from crowdml.privacy.mechanisms.sums import SUM_LAWS as SUM_LAWS
from crowdml.privacy.mechanisms.sums import Shared as Shared
from crowdml.privacy.mechanisms.sums import SumLaw as SumLaw
from crowdml.privacy.mechanisms.sums import SumMechanism as SumMechanism
from crowdml.privacy.mechanisms.sums import calibrate_sum as calibrate_sum

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
