"""Crowd-ML: A library for privacy-preserving machine learning on smart devices (2016)."""

from crowdml.studies.contract import Study
from crowdml.studies.crowdml_2016 import correlated, devices, noise, trade_off

STUDIES: dict[str, Study] = {
    "crowdml-2016/fig2": noise.FIG2,
    "crowdml-2016/devices": devices.DEVICES,
    "crowdml-2016/trade-off": trade_off.TRADE_OFF,
    "crowdml-2016/correlated": correlated.CORRELATED,
}
