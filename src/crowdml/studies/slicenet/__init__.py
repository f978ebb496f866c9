"""Crowdlearning: crowded deep learning with data privacy (SliceNet)."""

from crowdml.studies.contract import Study
from crowdml.studies.slicenet import crowd, shares, tables, trade_off

STUDIES: dict[str, Study] = {
    "slicenet/table1": crowd.TABLE_1,
    **shares.STUDIES,
    "slicenet/table5": tables.TABLE5,
    "slicenet/table6": tables.TABLE6,
    "slicenet/table7": tables.TABLE7,
    "slicenet/trade-off": trade_off.TRADE_OFF,
}
