"""Rates by name. A new one is a file beside these and a line below."""

from crowdml.algorithms.rates.adaptive import AdaGrad, RmsProp
from crowdml.algorithms.rates.contract import Counter as Counter
from crowdml.algorithms.rates.contract import Rate as Rate
from crowdml.algorithms.rates.contract import RateSettings as RateSettings
from crowdml.algorithms.rates.momentum import Momentum
from crowdml.algorithms.rates.power import Constant, Inverse, InverseSqrt
from crowdml.core import Registry

RATES: Registry[type[RateSettings]] = Registry(
    "rate",
    {
        "constant": Constant,
        "inverse": Inverse,
        "inverse-sqrt": InverseSqrt,
        "adagrad": AdaGrad,
        "rmsprop": RmsProp,
        "momentum": Momentum,
    },
)
