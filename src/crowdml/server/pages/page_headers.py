"""Headers of every page: what a browser may do with it.

Scripts and styles come from this server alone, each with the hash that the page names; nothing inside a page is run,
nobody else is asked, and nobody may put a page of ours into one of theirs. A form goes to this server or nowhere.
"""

from __future__ import annotations

_DENIED = (
    "autoplay",
    "camera",
    "display-capture",
    "geolocation",
    "hid",
    "microphone",
    "midi",
    "payment",
    "publickey-credentials-get",
    "serial",
    "usb",
)
"""What no page of ours asks a browser for."""
_ALLOWED = ("accelerometer", "gyroscope", "screen-wake-lock")
"""What a device in a browser needs."""

_COMMON = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "integrity-policy": "blocked-destinations=(script)",
    "permissions-policy": ", ".join(
        [*(f"{name}=(self)" for name in _ALLOWED), *(f"{name}=()" for name in _DENIED)],
    ),
}


def page_headers(forms: bool) -> dict[str, str]:
    """Return the headers of a page.

    Args:
        forms: Whether it has forms. Then a browser must say where they come from, which the strictest policy about
            referrers would forbid; it says so to this server alone.
    """
    target = "'self'" if forms else "'none'"
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        f"base-uri 'none'; form-action {target}; frame-ancestors 'none'"
    )
    referrer = "same-origin" if forms else "no-referrer"
    return _COMMON | {"content-security-policy": policy, "referrer-policy": referrer}
