"""Studies: figures and tables of the papers, reproduced by one command each."""

from crowdml.core import Registry
from crowdml.studies import admm, crowdml_2015, crowdml_2016
from crowdml.studies.contract import Report as Report
from crowdml.studies.contract import Row as Row
from crowdml.studies.contract import Study as Study
from crowdml.studies.run import reproduce as reproduce
from crowdml.studies.run import search as search

STUDIES: Registry[Study] = Registry("study", {**crowdml_2015.STUDIES, **crowdml_2016.STUDIES, **admm.STUDIES})
