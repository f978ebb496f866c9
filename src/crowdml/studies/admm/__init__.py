"""Practical collaborative learning for crowdsensing in the Internet of Things with differential privacy."""

from crowdml.studies.admm import local, noise, total, unlike, waiting
from crowdml.studies.contract import Study

STUDIES: dict[str, Study] = {
    "admm/fig3": local.FIG3,
    "admm/fig4": noise.FIG4,
    "admm/async": waiting.ASYNC,
    "admm/total": total.TOTAL,
    "admm/unlike": unlike.UNLIKE,
}
