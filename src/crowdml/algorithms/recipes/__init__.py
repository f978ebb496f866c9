"""Recipes by name. A new one is a file beside these and a line below, or `crowdml.register` outside the package."""

from crowdml.algorithms.recipe import PooledRecipe, Recipe, SlicedRecipe
from crowdml.algorithms.recipes.admm import ADMM
from crowdml.algorithms.recipes.admm_sums import ADMM_SUMS
from crowdml.algorithms.recipes.central import CENTRAL_BATCH, CENTRAL_SGD
from crowdml.algorithms.recipes.consensus_newton import CONSENSUS_NEWTON
from crowdml.algorithms.recipes.crowd_sgd import CROWD_SGD
from crowdml.algorithms.recipes.decentral import DECENTRAL
from crowdml.algorithms.recipes.federated.ditto import DITTO
from crowdml.algorithms.recipes.federated.dp_fedavg import DP_FEDAVG
from crowdml.algorithms.recipes.federated.fedavg import FEDAVG
from crowdml.algorithms.recipes.federated.fedbuff import FEDBUFF
from crowdml.algorithms.recipes.federated.fedprox import FEDPROX
from crowdml.algorithms.recipes.federated.fedsgd import FEDSGD
from crowdml.algorithms.recipes.federated.scaffold import SCAFFOLD
from crowdml.algorithms.recipes.federated.server_optimised import FEDADAM, FEDAVGM, FEDYOGI
from crowdml.algorithms.recipes.local_fit import LOCAL_FIT
from crowdml.algorithms.recipes.local_sgd import LOCAL_SGD
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
        "fedprox": FEDPROX,
        "fedavgm": FEDAVGM,
        "fedadam": FEDADAM,
        "fedyogi": FEDYOGI,
        "fedbuff": FEDBUFF,
        "scaffold": SCAFFOLD,
        "ditto": DITTO,
        "dp-fedavg": DP_FEDAVG,
        "admm": ADMM,
        "admm-sums": ADMM_SUMS,
        "consensus-newton": CONSENSUS_NEWTON,
        "ridge": RIDGE,
        "central-sgd": CENTRAL_SGD,
        "decentral": DECENTRAL,
        "local-fit": LOCAL_FIT,
    },
)
"""Recipes whose devices check in."""

POOLED: Registry[PooledRecipe] = Registry("pooled algorithm", {"central-batch": CENTRAL_BATCH})
"""Baselines that train on all rows at once."""

SLICED: Registry[SlicedRecipe] = Registry("sliced algorithm", {"slicenet": SLICENET})
"""Recipes whose devices hold pieces of one net."""
