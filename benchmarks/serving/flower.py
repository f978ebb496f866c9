"""What a reply costs Flower's SuperLink, with nodes that do nothing else.

    make bench-peers CLAIM=serving    # makes the environment, and compares with ours
    .venv-peers/flower/bin/python benchmarks/serving/flower.py [--database FILE] [--messages 300]

Runs in Flower's own environment. The SuperLink's Fleet API runs in a process of its own, as the SuperLink
starts it; a node here is a gRPC stub that pulls its messages and pushes replies of 500 float32 numbers, as a SuperNode
does, but without an application behind it. Messages to nodes are put into the SuperLink's state directly, so the
ServerApp costs nothing. The figure is CPU time of the SuperLink's process per reply.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.fleet_pb2_grpc import FleetStub
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree

TICK = os.sysconf("SC_CLK_TCK")
HEARTBEAT = 10.0


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def serve(database: str) -> None:
    """Be the SuperLink: the Fleet API, and a run whose messages come from standard input."""
    import logging

    from flwr.common.constant import NOOP_FLWR_AID
    from flwr.server.superlink.linkstate import LinkStateFactory
    from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
    from flwr.supercore.object_store import ObjectStoreFactory
    from flwr.superlink.cli.flower_superlink import _run_fleet_api_grpc_rere
    from flwr.superlink.federation import NoOpFederationManager

    logging.getLogger("flwr").setLevel(logging.ERROR)
    objects = ObjectStoreFactory(database)
    states = LinkStateFactory(database, NoOpFederationManager(), objects)
    state = states.state()
    server = _run_fleet_api_grpc_rere("127.0.0.1:0", states, objects, False, None)
    run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
    task = state.get_run_info(run_ids=[run])[0].primary_task_id
    if not (state.claim_task(task) and state.activate_task(task)):
        raise RuntimeError("the run does not start")
    threading.Thread(target=_live, args=(states, task), daemon=True).start()
    print(server.bound_address, run, flush=True)
    for line in sys.stdin:
        for node in map(int, line.split()):
            _send(state, run, node)
        print("sent", flush=True)


def _live(states: Any, task: int) -> None:
    """Say that the run goes on, as its ServerApp would: on a busy machine it would be over before it is measured."""
    while True:
        time.sleep(HEARTBEAT)
        states.state().acknowledge_task_heartbeat(task)


def _send(state: Any, run: int, node: int) -> None:
    """Leave a message for a node, with its objects."""
    from flwr.app.metadata import Metadata
    from flwr.common.constant import SUPERLINK_NODE_ID

    metadata = Metadata(
        run_id=run,
        message_id="",
        src_node_id=SUPERLINK_NODE_ID,
        dst_node_id=node,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=3600.0,
        message_type="train",
    )
    message = Message(content=RecordDict({"told": ConfigRecord({"round": 1})}), metadata=metadata)
    metadata.__dict__["_message_id"] = message.object_id
    session = state.start_session(run)
    stored, missing = state.store_message_and_object_tree(message, get_object_tree(message), session)
    if not stored:
        raise RuntimeError("the message was refused")
    parts = get_all_nested_objects(message)
    for name in missing:
        state.store_object(run, session, name, parts[name].deflate())


class ThinNode:
    """A node without an application."""

    def __init__(self, address: str, number: int) -> None:
        self._fleet: Any = FleetStub(grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]))
        key = f"thin node {number}".encode()
        self._fleet.RegisterNode(RegisterNodeFleetRequest(public_key=key))
        self.id = self._fleet.ActivateNode(ActivateNodeRequest(public_key=key, heartbeat_interval=600)).node_id
        self._node = Node(node_id=self.id)

    def answer(self) -> int:
        """Answer one message; return how many calls that took."""
        pulled = self._fleet.PullMessages(PullMessagesRequest(node=self._node))
        (asked,) = (message_from_proto(pulled_message) for pulled_message in pulled.messages_list)
        run, calls = asked.metadata.run_id, 3
        for tree in iterate_object_tree(pulled.message_object_trees[0]):
            self._fleet.PullObject(PullObjectRequest(node=self._node, run_id=run, object_id=tree.object_id))
            calls += 1
        told = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=asked.metadata.message_id)
        self._fleet.ConfirmMessageReceived(told)
        numbers = np.random.default_rng(self.id % 2**32 + calls).standard_normal(500).astype(np.float32)
        reply = Message(
            RecordDict({"gradient": ArrayRecord({"w": Array(numbers + time.time_ns() % 997)})}), reply_to=asked
        )
        reply.metadata.__dict__["_message_id"] = reply.object_id
        parts, tree = get_all_nested_objects(reply), get_object_tree(reply)
        bare = message_to_proto(remove_content_from_message(reply))
        request = PushMessagesRequest(node=self._node, messages_list=[bare], message_object_trees=[tree])
        pushed = self._fleet.PushMessages(request)
        for name in pushed.objects_to_push:
            content = parts[name].deflate()
            sent = PushObjectRequest(
                node=self._node, run_id=run, object_id=name, object_content=content, session_id=pushed.session_id
            )
            if not self._fleet.PushObject(sent).stored:
                raise RuntimeError("an object was refused")
            calls += 1
        return calls


def main() -> None:
    """Measure a few turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default=":flwr-in-memory:", help="file of the SuperLink's database")
    parser.add_argument("--messages", type=int, default=300, help="per turn")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.database)
        return
    command = [sys.executable, __file__, "--serve", "--database", given.database]
    link = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert link.stdin is not None and link.stdout is not None
    try:
        address, _ = link.stdout.readline().split()
        nodes = [ThinNode(address, number) for number in range(given.nodes)]
        costs, calls = [], 0
        for _ in range(4):
            each = given.messages // given.nodes
            link.stdin.write(" ".join(str(node.id) for node in nodes for _ in range(each)) + "\n")
            link.stdin.flush()
            link.stdout.readline()
            before = cpu_seconds(link.pid)
            with ThreadPoolExecutor(given.nodes) as pool:
                calls = max(pool.map(lambda node, n=each: max(node.answer() for _ in range(n)), nodes))
            costs.append((cpu_seconds(link.pid) - before) / (each * given.nodes))
        cost = sorted(costs[1:])[1]
        print(f"{cost * 1e6:.0f} µs of CPU per reply ({calls} calls), {1 / cost:.0f} replies per CPU second")
    finally:
        link.kill()
        link.wait()


if __name__ == "__main__":
    main()
