"""Second factors in a browser: an authenticator app, a virtual passkey, and a tenant that requires one.

The web process has no engine: signing in needs none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from lorikeet_testing.axe import COLOURS, broken_rules
from lorikeet_testing.browser import Signed
from lorikeet_testing.seed import PASSWORD
from lorikeet_testing.web import WebProcess
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from control_plane.identity.second_factor import totp

OWNER = "owner@acme.example"
MEMBER = "ada@acme.example"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebProcess]:
    """A web process of one test, whose second run must not find the factors that the first one has set up."""
    # Tests sign in more often than people.
    rates = {"LORIKEET_LOGIN_RATE": "200/min", "LORIKEET_LOGIN_ACCOUNT_RATE": "200/min"}
    web = WebProcess(tmp_path / "web" / "var", "", rates)
    web.seed(adapters=False)
    web.start()
    yield web
    web.stop()


@pytest.fixture
def address(web: WebProcess) -> str:
    """Browsers offer no passkeys to pages of an IP address."""
    return web.url.replace("127.0.0.1", "localhost")


def opened(browser: Browser, address: str) -> Page:
    context = browser.new_context(
        base_url=address, color_scheme="light", reduced_motion="reduce", viewport={"width": 1440, "height": 900}
    )
    context.set_default_timeout(20_000)
    return context.new_page()


def first_step(page: Page, email: str) -> None:
    page.goto("/login")
    page.get_by_test_id("login-email").fill(email)
    page.get_by_test_id("login-password").fill(PASSWORD)
    page.get_by_test_id("login-submit").click()


def with_authenticator(page: Page) -> BrowserContext:
    """Give the page a virtual authenticator, which consents to everything."""
    cdp = page.context.new_cdp_session(page)
    cdp.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    cdp.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return page.context


def look(page: Page, name: str) -> None:
    """Check the page in both themes and on a phone; keep pictures where LORIKEET_SCREENSHOTS names a folder."""
    folder = os.environ.get("LORIKEET_SCREENSHOTS")
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            if not folder and (theme == "dark") == (width == 1440):
                continue  # an ordinary run looks at the light theme on a wide screen and at the dark one on a phone
            assert broken_rules(page, COLOURS if theme == "dark" else None) == [], f"{name}, {theme}, {width}"
            over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert over <= 0, f"{name}, {width}: {over} px wider than the screen"
            if folder:
                page.screenshot(path=Path(folder) / f"{name}-{theme}-{width}.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1440, "height": 900})


def test_from_the_first_set_up_to_a_tenant_that_requires_it(
    browser: Browser, web: WebProcess, address: str, tmp_path: Path
) -> None:
    page = opened(browser, address)
    first_step(page, OWNER)
    page.wait_for_url(re.compile("/t/acme"))
    page.goto("/t/acme/settings")
    expect(page.get_by_text("set up your own second factor")).to_be_visible()
    look(page, "settings-no-second-factor")
    page.get_by_text("set up your own second factor").click()
    expect(page.get_by_role("tab", name="Security")).to_have_attribute("aria-selected", "true")
    look(page, "account-security")

    page.get_by_test_id("set-up-app").click()
    secret = (page.get_by_test_id("app-secret").text_content() or "").replace(" ", "")
    look(page, "set-up-app")
    page.get_by_test_id("app-code").fill("000000")
    page.get_by_test_id("app-finish").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("The code is wrong")
    page.get_by_test_id("app-code").fill(totp.code_at(secret, time.time()))
    page.get_by_test_id("app-finish").click()
    codes = page.get_by_test_id("recovery-codes").locator("li")
    expect(codes).to_have_count(10)
    saved = codes.all_text_contents()
    look(page, "recovery-codes")
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text("10 of 10 left")).to_be_visible()
    look(page, "account-security-on")

    page.goto("/t/acme/settings")
    page.get_by_test_id("require-second-factor").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Require").click()
    expect(page.get_by_text("Required", exact=True)).to_be_visible()
    look(page, "settings-required")
    for tab in ("profile", "appearance"):
        page.goto(f"/t/acme/account?tab={tab}")
        expect(page.get_by_role("tabpanel")).to_be_visible()
        look(page, f"account-{tab}")

    signed_in_with_a_code(browser, address, secret, saved[0])
    a_member_with_a_passkey(browser, web, page, address, totp.code_at(secret, time.time() + totp.STEP_S))
    the_command_line(web, saved[1], tmp_path)
    an_operator_resets_it(browser, web, address)


def signed_in_with_a_code(browser: Browser, address: str, secret: str, recovery: str) -> None:
    page = opened(browser, address)
    first_step(page, OWNER)
    expect(page.get_by_role("heading", name="Confirm that it is you")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Confirm that it is you")).to_be_visible()
    look(page, "second-step")
    page.get_by_role("button", name="Sign in as somebody else").click()
    first_step(page, OWNER)
    page.get_by_test_id("code").fill("123456")
    page.get_by_test_id("code-submit").click()
    expect(page.get_by_role("alert")).to_contain_text("The code is wrong, or was used already.")
    page.get_by_test_id("code").fill(recovery)
    page.get_by_test_id("code-submit").click()
    page.wait_for_url(re.compile("/t/acme"))
    page.context.close()


def a_member_with_a_passkey(browser: Browser, web: WebProcess, owner: Page, address: str, code: str) -> None:
    csrf = owner.request.get("/api/session").json()["csrf_token"]
    headers = {"X-CSRFToken": csrf, "Origin": address}
    body = {"email": MEMBER, "role": "developer"}
    link = owner.request.post("/api/tenants/acme/invitations", data=body, headers=headers).json()["link"]
    page = opened(browser, address)
    with_authenticator(page)
    page.goto(f"/invitation#{link.partition('#')[2]}")
    page.get_by_test_id("invitation-name").fill("Ada")
    page.get_by_test_id("invitation-password").fill(PASSWORD)
    page.get_by_test_id("invitation-accept").click()
    page.wait_for_url(re.compile("/second-factor"))
    expect(page.get_by_text("requires two-factor authentication")).to_be_visible()
    look(page, "second-factor-required")
    page.get_by_test_id("add-passkey").click()
    look(page, "add-passkey")
    page.get_by_test_id("passkey-name").fill("Ada’s laptop")
    page.get_by_test_id("passkey-continue").click()
    expect(page.get_by_test_id("recovery-codes").locator("li")).to_have_count(10)
    page.get_by_role("button", name="Done").click()
    page.get_by_test_id("continue").click()
    page.wait_for_url(re.compile("/t/acme"))
    page.goto("/t/acme/members")
    expect(page.get_by_text("2FA")).to_have_count(2)
    look(page, "members")

    page.get_by_role("button", name="Sign out").first.click()
    page.wait_for_url(re.compile("/login"))
    first_step(page, MEMBER)
    look(page, "second-step-passkey")
    page.get_by_test_id("use-passkey").click()
    page.wait_for_url(re.compile("/t/acme"))
    page.goto("/t/acme/account?tab=security")
    expect(page.get_by_text("Ada’s laptop")).to_be_visible()
    look(page, "account-passkey")
    page.get_by_role("button", name="Remove the passkey").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("alertdialog").get_by_role("alert")).to_contain_text("Acme requires one")
    page.context.close()


def an_operator_resets_it(browser: Browser, web: WebProcess, address: str) -> None:
    web.query("UPDATE accounts_user SET is_operator = TRUE WHERE email = 'owner@globex.example' RETURNING id")
    page = opened(browser, address)
    first_step(page, "owner@globex.example")
    page.wait_for_url(re.compile("/t/globex"))
    page.goto("/t/globex/operator/tenants/acme")
    expect(page.get_by_role("button", name="Reset 2FA of")).to_have_count(2)
    look(page, "operator-tenant")
    page.get_by_role("button", name=f"Reset 2FA of {MEMBER}").click()
    look(page, "reset-second-factor")
    page.get_by_role("alertdialog").get_by_role("button", name="Reset").click()
    expect(page.get_by_role("button", name="Reset 2FA of")).to_have_count(1)
    page.context.close()
    page = opened(browser, address)
    first_step(page, MEMBER)
    page.wait_for_url(re.compile("/second-factor"))  # in by the password alone, and asked to set one up again
    page.context.close()


def the_command_line(web: WebProcess, code: str, home: Path) -> None:
    command = [sys.executable, "-m", "lorikeet_cli", "login", web.url, "--email", OWNER]
    env = {**os.environ, "LORIKEET_CONFIG": str(home / "cli"), "HOME": str(home), "PYTHONPATH": "platform"}
    refused = subprocess.run(command, input=f"{PASSWORD}\n", capture_output=True, text=True, env=env)
    assert refused.returncode != 0
    assert "has a second factor" in refused.stderr
    assert "--key" in refused.stderr
    done = subprocess.run(command, input=f"{PASSWORD}\n{code}\n", capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "member of acme" in done.stderr


def test_an_old_session_confirms_first(browser: Browser, web: WebProcess, address: str) -> None:
    """The page asks for the password where the server says that the last confirmation is too long ago."""
    page = opened(browser, address)
    first_step(page, "owner@globex.example")
    page.wait_for_url(re.compile("/t/globex"))
    stale: dict[str, object] = {
        "app": None,
        "passkeys": [],
        "recovery_codes_left": 0,
        "required_by": [],
        "confirmed": False,
    }
    asked: list[int] = []

    def answer(route: Route) -> None:
        asked.append(1)
        route.fulfill(json={**stale, "passkeys_available": True, "confirmed": False}) if len(
            asked
        ) < 3 else route.continue_()

    page.route("**/api/second-factors", answer)
    page.goto("/t/globex/account?tab=security")
    page.get_by_test_id("set-up-app").click()
    page.get_by_test_id("confirm-password").fill("wrong")
    page.get_by_test_id("confirm-identity").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("password is not correct")
    look(page, "confirm-identity")
    page.get_by_test_id("confirm-password").fill(PASSWORD)
    page.get_by_test_id("confirm-identity").click()
    expect(page.get_by_test_id("app-secret")).to_be_visible()
    assert Signed(web.url, "owner@globex.example", PASSWORD).tenants == ["globex"]
    page.context.close()
