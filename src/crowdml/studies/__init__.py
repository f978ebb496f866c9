"""Studies: figures and tables of the papers, reproduced by one command each."""

from crowdml.core import Registry
from crowdml.studies import admm, crowdml_2015, crowdml_2016, external, odpfl, slicenet
from crowdml.studies.run import reproduce as reproduce
from crowdml.studies.run import search as search
from crowdml.studies.study import Report as Report
from crowdml.studies.study import Row as Row
from crowdml.studies.study import Study as Study

PAPERS = (crowdml_2015, crowdml_2016, odpfl, slicenet, admm, external)
STUDIES: Registry[Study] = Registry("study", {name: study for paper in PAPERS for name, study in paper.STUDIES.items()})
