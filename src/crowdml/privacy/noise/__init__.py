"""Noise: its laws and exact samplers, the grid that it is added on, shares of it, and noise on counts."""

from crowdml.privacy.noise.laws import DISCRETE_GAUSSIAN as DISCRETE_GAUSSIAN
from crowdml.privacy.noise.laws import DISCRETE_LAPLACE as DISCRETE_LAPLACE
from crowdml.privacy.noise.laws import ROUNDED_GAUSSIAN as ROUNDED_GAUSSIAN
from crowdml.privacy.noise.laws import NoiseLaw as NoiseLaw
