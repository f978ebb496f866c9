"""Secure aggregation: a server learns the sum of many vectors, and nothing about any one of them, even if it cheats.

`SumDevice` and `SumServer` are machines: they take messages and give messages, and know no clock, network or file.
Members may drop out at every stage. After Bonawitz and others (2017) and Bell and others (2020).
"""

from crowdml.protocol.sums.device import SumDevice as SumDevice
from crowdml.protocol.sums.errors import LateMessage as LateMessage
from crowdml.protocol.sums.errors import SumAborted as SumAborted
from crowdml.protocol.sums.errors import WrongMail as WrongMail
from crowdml.protocol.sums.peers import Peers as Peers
from crowdml.protocol.sums.roster import Broadcast as Broadcast
from crowdml.protocol.sums.server import Sum as Sum
from crowdml.protocol.sums.server import SumServer as SumServer
from crowdml.protocol.sums.terms import SumTerms as SumTerms
from crowdml.protocol.sums.terms import bits_for as bits_for
