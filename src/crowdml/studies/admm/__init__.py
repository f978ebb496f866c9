"""Practical collaborative learning for crowdsensing in the Internet of Things with differential privacy."""

from crowdml.studies.admm import paper_figures, total, unlike, waiting
from crowdml.studies.study import Study

STUDIES: dict[str, Study] = {
    "admm/fig3": paper_figures.FIG3,
    "admm/fig4": paper_figures.FIG4,
    "admm/async": waiting.ASYNC,
    "admm/total": total.TOTAL,
    "admm/unlike": unlike.UNLIKE,
}
