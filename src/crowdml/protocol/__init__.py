"""Protocol: the messages and their bytes."""

from crowdml.protocol.layout import Layout as Layout
from crowdml.protocol.messages import PROTOCOL_VERSION as PROTOCOL_VERSION
from crowdml.protocol.messages import Messages as Messages
from crowdml.protocol.messages import layouts as layouts
from crowdml.protocol.messages import message as message
from crowdml.protocol.sheet import Sheet as Sheet
from crowdml.protocol.sheet import SignedSheet as SignedSheet
from crowdml.protocol.sheet import sign_sheet as sign_sheet
