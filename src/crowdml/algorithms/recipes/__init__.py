"""Recipes by name. A new one is a file beside these and a line below."""

from crowdml.algorithms.recipes.contract import Recipe as Recipe
from crowdml.algorithms.recipes.crowd_sgd import CROWD_SGD
from crowdml.core import Registry

RECIPES: Registry[Recipe] = Registry(
    "algorithm",
    {
        "crowd-sgd": CROWD_SGD,
    },
)
