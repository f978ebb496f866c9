"""Algorithms: the contract, recipes, rates, and the task file that puts them together."""

from crowdml.algorithms.contract import Algorithm as Algorithm
from crowdml.algorithms.contract import Counts as Counts
from crowdml.algorithms.contract import Parts as Parts
from crowdml.algorithms.contract import Rounds as Rounds
from crowdml.algorithms.recipes import RECIPES as RECIPES
from crowdml.algorithms.task import Task as Task
from crowdml.algorithms.task_file import load as load
from crowdml.algorithms.task_file import parse as parse
