"""A browser without a screen: signs in at the operator's pages of an application, and sends forms as browsers do."""

from __future__ import annotations

import re
from typing import Any

import httpx

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class Browser:
    """One browser that looks at the pages of a server; it keeps its cookie."""

    def __init__(self, app: Any) -> None:
        self.app, self.cookie = app, ""

    @property
    def own(self) -> dict[str, str]:
        """What a browser says of a form on a page of this server."""
        return {"origin": self.app.address, "sec-fetch-site": "same-origin"}

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._send("GET", path, headers=self._with_cookie(HTML | headers))

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        """Send a form with the session's secret, as our pages do."""
        return self.post_raw(path, {"form-secret": self.secret()} | (fields or {}), **headers)

    def post_raw(self, path: str, fields: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        """Send just these fields; `files` are sent as browsers send them."""
        files = more.pop("files", None)
        headers = self._with_cookie(HTML | self.own | {name.replace("_", "-"): value for name, value in more.items()})
        headers = {name: value for name, value in headers.items() if value}
        return self._send("POST", path, headers=headers, data=fields or {}, files=files)

    def sign_in(self, token: str | None = None) -> httpx.Response:
        answer = self.post_raw("/operator/sign-in", {"token": self.app.token if token is None else token})
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def secret(self) -> str:
        """Return what the forms of this session carry."""
        found = re.search(r'name="form-secret" value="([^"]+)"', self.get("/operator").text)
        assert found, "not signed in"
        return found[1]

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer: httpx.Response = self.app.send(method, path, **more)
        # All browsers of a test share one client, which must not keep their cookies for them.
        client = self.app.plain if hasattr(self.app, "plain") else self.app.session
        client.cookies.clear()
        return answer

    def _with_cookie(self, headers: dict[str, str]) -> dict[str, str]:
        return headers | ({"cookie": self.cookie} if self.cookie else {})


def signed_in(app: Any) -> Browser:
    """Return a browser in which the operator has signed in."""
    browser = Browser(app)
    answer = browser.sign_in()
    assert answer.status_code == 303, answer.text
    return browser
