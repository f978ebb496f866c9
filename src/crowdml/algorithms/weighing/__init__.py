"""Weighing: how much each check-in counts in an average, where that is more than its number of rows."""

from crowdml.algorithms.weighing.contract import Average as Average
from crowdml.algorithms.weighing.contract import By as By
from crowdml.algorithms.weighing.contract import Weigh as Weigh
from crowdml.algorithms.weighing.contract import of_changes as of_changes
from crowdml.algorithms.weighing.contract import weighted as weighted
from crowdml.algorithms.weighing.inverse_variance import inverse_variance as inverse_variance
from crowdml.algorithms.weighing.learned import LearnedSettings as LearnedSettings
from crowdml.algorithms.weighing.learned import average_of as average_of
from crowdml.algorithms.weighing.learned import learned as learned
