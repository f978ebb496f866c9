"""Algorithms: the contract, recipes and rates."""

from crowdml.algorithms.contract import Algorithm as Algorithm
from crowdml.algorithms.contract import DevicePart as DevicePart
from crowdml.algorithms.contract import Phase as Phase
from crowdml.algorithms.contract import ServerPart as ServerPart
from crowdml.algorithms.contract import SpeedHints as SpeedHints
from crowdml.algorithms.contract import one_phase as one_phase
from crowdml.algorithms.recipe import Parts as Parts
from crowdml.algorithms.recipe import Recipe as Recipe
from crowdml.algorithms.recipes import RECIPES as RECIPES
from crowdml.algorithms.schedule import Barrier as Barrier
from crowdml.algorithms.schedule import Counts as Counts
from crowdml.algorithms.schedule import OnArrival as OnArrival
from crowdml.algorithms.schedule import Rounds as Rounds
