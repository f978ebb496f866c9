"""Crowd-ML: A library for privacy-preserving machine learning on smart devices (2016)."""

from crowdml.studies.crowdml_2016 import correlated, devices, local_steps, noise_and_rates
from crowdml.studies.study import Study

STUDIES: dict[str, Study] = {
    "crowdml-2016/fig2": noise_and_rates.FIG2,
    "crowdml-2016/devices": devices.DEVICES,
    "crowdml-2016/trade-off": local_steps.TRADE_OFF,
    "crowdml-2016/correlated": correlated.CORRELATED,
}
