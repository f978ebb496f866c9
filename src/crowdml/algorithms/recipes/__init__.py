"""Recipes by name. A new one is a file beside these and a line below."""

from crowdml.algorithms.recipes.admm import ADMM
from crowdml.algorithms.recipes.central import CENTRAL_BATCH, CENTRAL_SGD
from crowdml.algorithms.recipes.consensus_newton import CONSENSUS_NEWTON
from crowdml.algorithms.recipes.contract import Recipe as Recipe
from crowdml.algorithms.recipes.crowd_sgd import CROWD_SGD
from crowdml.algorithms.recipes.decentral import DECENTRAL
from crowdml.algorithms.recipes.local_fit import LOCAL_FIT
from crowdml.algorithms.recipes.local_sgd import FEDAVG, FEDSGD, LOCAL_SGD
from crowdml.algorithms.recipes.ridge import RIDGE
from crowdml.algorithms.recipes.slicenet import SLICENET
from crowdml.core import Registry

RECIPES: Registry[Recipe] = Registry(
    "algorithm",
    {
        "crowd-sgd": CROWD_SGD,
        "local-sgd": LOCAL_SGD,
        "fedavg": FEDAVG,
        "fedsgd": FEDSGD,
        "admm": ADMM,
        "consensus-newton": CONSENSUS_NEWTON,
        "ridge": RIDGE,
        "central-sgd": CENTRAL_SGD,
        "central-batch": CENTRAL_BATCH,
        "decentral": DECENTRAL,
        "local-fit": LOCAL_FIT,
        "slicenet": SLICENET,
    },
)
