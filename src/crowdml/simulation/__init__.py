"""Simulation: a crowd on one machine, as compiled code."""

from crowdml.simulation.result import Result as Result
from crowdml.simulation.run import simulate as simulate
from crowdml.simulation.run import simulate_cells as simulate_cells
