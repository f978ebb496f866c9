"""Crowdlearning: crowded deep learning with data privacy (SliceNet)."""

from crowdml.studies.slicenet import (
    all_passes,
    convergence,
    cost_tables,
    first_passes,
    noise_trade_off,
    training_tables,
)
from crowdml.studies.study import Study

STUDIES: dict[str, Study] = {
    "slicenet/table1": training_tables.TABLE_1,
    "slicenet/table2": training_tables.TABLE_2,
    "slicenet/table3": training_tables.TABLE_3,
    "slicenet/table3-uploads": training_tables.TABLE_3_UPLOADS,
    "slicenet/table4": training_tables.TABLE_4,
    "slicenet/cnn": first_passes.CNN,
    "slicenet/cnn-all": all_passes.ALL,
    "slicenet/fig3": convergence.FIG3,
    "slicenet/fig4": convergence.FIG4,
    "slicenet/fig5": convergence.FIG5,
    "slicenet/fig6": convergence.FIG6,
    "slicenet/table5": cost_tables.TABLE5,
    "slicenet/table6": cost_tables.TABLE6,
    "slicenet/table7": cost_tables.TABLE7,
    "slicenet/trade-off": noise_trade_off.TRADE_OFF,
}
