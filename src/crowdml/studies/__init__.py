"""Studies: figures and tables of the papers, reproduced by one command each."""

from crowdml.core import Registry
from crowdml.studies import admm, crowdml_2015, crowdml_2016, odpfl, slicenet
from crowdml.studies.contract import Report as Report
from crowdml.studies.contract import Row as Row
from crowdml.studies.contract import Study as Study
from crowdml.studies.run import reproduce as reproduce
from crowdml.studies.run import search as search

PAPERS = (crowdml_2015, crowdml_2016, odpfl, slicenet, admm)
STUDIES: Registry[Study] = Registry("study", {name: own for paper in PAPERS for name, own in paper.STUDIES.items()})
