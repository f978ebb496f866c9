"""The one table of routes: what a server answers, by whom it is answered, and who may ask.

Raw routes are those that devices use all day; they are there before the framework is loaded. Everything else is a
function of the framework. Who may ask is enforced from this table, and the OpenAPI description is made from it.
"""

from __future__ import annotations

from typing import Literal

from crowdml.core import record
from crowdml.secure_aggregation.stages import MESSAGES

Who = Literal["anyone", "device", "operator", "operator or device", "session"]


@record
class Route:
    """A line of the table.

    Attributes:
        methods: HTTP methods.
        path: Path; a name in braces is a parameter.
        who: Whose token is asked for; nobody's for "anyone". For "session" the operator's browser must have signed in,
            and what changes something must come from a form of ours.
        handler: Module and name of the function that answers.
        described: Whether the OpenAPI description has it.
    """

    methods: tuple[str, ...]
    path: str
    who: Who
    handler: str
    described: bool


# methods, path, who, handler
_RAW: tuple[tuple[str, str, Who, str], ...] = (
    ("GET", "/healthz", "anyone", "front_door.health"),
    ("GET", "/v1/tasks/{task}/check-out", "device", "exchange.check_out"),
    ("POST", "/v1/tasks/{task}/check-ins", "device", "exchange.check_in"),
    ("GET", "/v1/tasks/{task}/sums", "device", "secure_routes.status"),
    ("POST", "/v1/tasks/{task}/sums/{stage}", "device", "secure_routes.hand_over"),
    ("GET", "/v1/tasks/{task}/sums/{stage}", "device", "secure_routes.ask_again"),
    ("GET", "/v1/tasks/{task}/relay", "device", "relay.plain"),
)
_API: tuple[tuple[str, str, Who, str], ...] = (
    ("GET", "/v1/tasks", "anyone", "control.list_tasks"),
    ("POST", "/v1/tasks", "operator", "control.create_task"),
    ("GET", "/v1/tasks/{task}", "anyone", "control.show_task"),
    ("PATCH", "/v1/tasks/{task}", "operator", "control.change_task"),
    ("GET", "/v1/tasks/{task}/model", "operator or device", "control.get_model"),
    ("GET", "/v1/tasks/{task}/curve", "anyone", "status_routes.curve"),
    ("GET", "/v1/tasks/{task}/statistics", "anyone", "status_routes.statistics"),
    ("GET", "/v1/tasks/{task}/groups", "anyone", "status_routes.groups"),
    ("POST", "/v1/tasks/{task}/leak", "operator", "control.note_leak"),
    ("GET", "/v1/tasks/{task}/events", "anyone", "status_routes.events"),
    ("POST", "/v1/tasks/{task}/invites", "operator", "control.make_invites"),
    ("GET", "/v1/tasks/{task}/invites/{code_hash}", "anyone", "control.show_invite"),
    ("GET", "/v1/tasks/{task}/devices", "operator", "control.list_devices"),
    ("POST", "/v1/tasks/{task}/devices", "anyone", "control.enrol"),
    ("DELETE", "/v1/tasks/{task}/devices/{device}", "operator", "control.revoke_device"),
    ("GET", "/v1/devices/me", "device", "control.show_me"),
    ("DELETE", "/v1/devices/me", "device", "control.withdraw"),
    ("GET", "/v1/devices/me/receipts", "device", "control.show_receipts"),
    ("GET", "/v1/operator/log", "operator", "operator_routes.show_log"),
    ("POST", "/v1/operator/token", "operator", "operator_routes.rotate_token"),
    ("GET", "/metrics", "anyone", "status_routes.metrics"),
)
_PAGES: tuple[tuple[str, str, Who, str], ...] = (
    ("GET", "/openapi.json", "anyone", "status_routes.description"),
    ("GET HEAD", "/", "anyone", "tasks_page.tasks_page"),
    ("GET HEAD", "/tasks/{task}", "anyone", "task_page.task_page"),
    ("GET HEAD", "/join/{task}", "anyone", "join_page.join_page"),
    ("GET HEAD", "/device", "anyone", "device_page.device_page"),
    ("GET HEAD", "/static/{name:path}", "anyone", "static_files.static_file"),
)

_OPERATOR: tuple[tuple[str, str, Who, str], ...] = (
    ("GET HEAD", "/operator", "anyone", "sign_in.front_page"),
    ("POST", "/operator/sign-in", "anyone", "sign_in.sign_in"),
    ("POST", "/operator/sign-out", "session", "sign_in.sign_out"),
    ("GET HEAD", "/operator/new-task", "session", "new_task_pages.form_page"),
    ("POST", "/operator/new-task", "session", "new_task_pages.take_form"),
    ("GET HEAD", "/operator/new-task/file", "session", "new_task_pages.file_page"),
    ("POST", "/operator/new-task/file", "session", "new_task_pages.take_file"),
    ("GET HEAD", "/operator/log", "session", "log_pages.log_page"),
    ("GET", "/operator/log.csv", "session", "log_pages.log_file"),
    ("GET HEAD", "/operator/server", "session", "server_pages.server_page"),
    ("POST", "/operator/server/token", "session", "server_pages.rotate"),
    ("POST", "/operator/server/backup", "session", "server_pages.download_backup"),
    ("GET HEAD", "/operator/tasks/{task}", "session", "task_control.control_page"),
    ("GET HEAD", "/operator/tasks/{task}/state/{wanted}", "session", "task_control.confirm_page"),
    ("POST", "/operator/tasks/{task}/state/{wanted}", "session", "task_control.move"),
    ("GET", "/operator/tasks/{task}/model/{kind}", "session", "task_control.export"),
    ("POST", "/operator/tasks/{task}/invites", "session", "crowd_pages.invite"),
    ("GET HEAD", "/operator/tasks/{task}/devices", "session", "crowd_pages.devices_page"),
    ("GET HEAD", "/operator/tasks/{task}/devices/{device}/revoke", "session", "crowd_pages.confirm_revoke"),
    ("POST", "/operator/tasks/{task}/devices/{device}/revoke", "session", "crowd_pages.revoke"),
)


def _read(lines: tuple[tuple[str, str, Who, str], ...], described: bool = True) -> tuple[Route, ...]:
    return tuple(
        Route(methods=tuple(methods.split()), path=path, who=who, handler=handler, described=described)
        for methods, path, who, handler in lines
    )


RAW_ROUTES = _read(_RAW)
FRAMEWORK_ROUTES = _read(_API) + _read(_PAGES + _OPERATOR, described=False)
ROUTES = RAW_ROUTES + FRAMEWORK_ROUTES

SUM_STAGES = tuple(MESSAGES)
"""What `{stage}` may be."""
