"""Secure aggregation: a server learns the sum of many vectors, and nothing about any one of them, even if it cheats.

`SumDevice` and `SumServer` are machines: they take messages and give messages, and know no clock, network or file.
Members may drop out at every stage. After Bonawitz and others (2017) and Bell and others (2020).
"""

from crowdml.secure_aggregation.member_keys import Peers as Peers
from crowdml.secure_aggregation.roster import BroadcastHash as BroadcastHash
from crowdml.secure_aggregation.stages import LateMessage as LateMessage
from crowdml.secure_aggregation.stages import SumAborted as SumAborted
from crowdml.secure_aggregation.stages import WrongMail as WrongMail
from crowdml.secure_aggregation.sum_device import SumDevice as SumDevice
from crowdml.secure_aggregation.sum_server import SumServer as SumServer
from crowdml.secure_aggregation.sum_terms import Sum as Sum
from crowdml.secure_aggregation.sum_terms import SumTerms as SumTerms
from crowdml.secure_aggregation.sum_terms import bits_for as bits_for
