"""Exact samplers: integer arithmetic from words of entropy to noise, with no floating point in between."""

from crowdml.privacy.samplers.bernoulli import flip as flip
from crowdml.privacy.samplers.bernoulli import flip_exp as flip_exp
from crowdml.privacy.samplers.discrete_gaussian import discrete_gaussian as discrete_gaussian
from crowdml.privacy.samplers.discrete_laplace import discrete_laplace as discrete_laplace
from crowdml.privacy.samplers.poisson import poisson as poisson
from crowdml.privacy.samplers.response import randomised_response as randomised_response
from crowdml.privacy.samplers.skellam import skellam as skellam
from crowdml.privacy.samplers.words import GivenWords as GivenWords
from crowdml.privacy.samplers.words import OsWords as OsWords
from crowdml.privacy.samplers.words import Words as Words
from crowdml.privacy.samplers.words import below as below
