"""A real browser for the pages of real servers."""

from __future__ import annotations

from tests.support.browser import browser as browser
