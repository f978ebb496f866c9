"""Tables from outside our papers: published figures of other systems, which check ours."""

from crowdml.studies.external.dpsgd import DPSGD
from crowdml.studies.external.niid import NIID
from crowdml.studies.study import Study

STUDIES: dict[str, Study] = {"external/niid": NIID, "external/dpsgd": DPSGD}
