"""What crosses the wire: messages and their bytes, the signed task, and the link that invites."""

from crowdml.wire.messages import PROTOCOL_HEADER as PROTOCOL_HEADER
from crowdml.wire.messages import PROTOCOL_VERSION as PROTOCOL_VERSION
from crowdml.wire.messages import Layout as Layout
from crowdml.wire.messages import Messages as Messages
from crowdml.wire.messages import layouts as layouts
from crowdml.wire.messages import message as message
from crowdml.wire.signed_task import SignedTask as SignedTask
from crowdml.wire.signed_task import TaskDocument as TaskDocument
from crowdml.wire.signed_task import sign_task as sign_task
