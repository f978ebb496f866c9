"""ODPFL: federated averaging, privacy on devices, and averages that the server learns on public rows."""

from crowdml.studies.odpfl import all_rounds
from crowdml.studies.odpfl.averages import FIG1, FIG2, MISLABELLED
from crowdml.studies.odpfl.both import BOTH
from crowdml.studies.odpfl.byzantine import ATTACKED
from crowdml.studies.odpfl.fixed_features import FIXED_FEATURES
from crowdml.studies.odpfl.mixed import MIXED
from crowdml.studies.odpfl.own import OWN
from crowdml.studies.odpfl.private import PRIVATE
from crowdml.studies.odpfl.writers import WRITERS
from crowdml.studies.study import Study

STUDIES: dict[str, Study] = {
    "odpfl/fig1": FIG1,
    "odpfl/fig2": FIG2,
    "odpfl/own": OWN,
    "odpfl/own-all": all_rounds.ALL,
    "odpfl/both": BOTH,
    "odpfl/mislabelled": MISLABELLED,
    "odpfl/mixed": MIXED,
    "odpfl/attacks": ATTACKED,
    "odpfl/writers": WRITERS,
    "odpfl/private": PRIVATE,
    "odpfl/fixed-features": FIXED_FEATURES,
}
