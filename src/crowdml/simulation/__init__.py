"""Simulation: a crowd on one machine, as compiled code."""

# First, before anything below imports JAX.
from crowdml.simulation import jax_setup as jax_setup
from crowdml.simulation.result import Result as Result
from crowdml.simulation.run import simulate as simulate
from crowdml.simulation.run import simulate_cells as simulate_cells
