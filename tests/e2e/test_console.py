"""The main job in a browser: upload an adapter, watch it become ready, stream from it. And every page's manners."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from lorikeet_testing.axe import COLOURS, broken_rules
from lorikeet_testing.launched import Access
from playwright.sync_api import Browser, BrowserContext, Locator, Page, StorageState, ViewportSize, expect

ROOT = Path(__file__).parents[2]
EMOJI = ROOT / "demo" / "uploads" / "emoji"
FILES = [EMOJI / "adapter_config.json", EMOJI / "adapter_model.safetensors"]
TENANT = "/t/acme"
PAGES = {
    "overview": "",
    "adapters": "/adapters",
    "adapter": "/adapters/pirate",
    "upload": "/upload",
    "playground": "/playground",
    "batches": "/batches",
    "requests": "/requests",
    "usage": "/usage",
    "limits": "/limits",
    "slo": "/slo",
    "hosts": "/hosts",
    "keys": "/keys",
    "members": "/members",
    "audit": "/audit",
    "webhooks": "/webhooks",
    "operator": "/operator",
    "operator-tenants": "/operator/tenants",
    "operator-tenant": "/operator/tenants/acme",
    "operator-hosts": "/operator/hosts",
    "operator-audit": "/operator/audit",
    "settings": "/settings",
    "account": "/account",
    "account-security": "/account?tab=security",
    "account-appearance": "/account?tab=appearance",
}
DIALOGS = {
    "/keys": ["Create key", "Edit demo", "Rotate demo", "Revoke demo"],
    "/members": ["Invite"],
    "/limits": ["Edit as operator", "Edit limits of demo"],
    "/slo": ["Set objectives"],
    "/webhooks": ["Add webhook"],
    "/batches": ["New batch"],
    "/adapters/pirate": ["New alias", "Archive pirate"],
    "/usage": ["New export"],
    "/operator": ["Publish prices"],
    "/operator/tenants": ["Create tenant"],
    "/operator/tenants/acme": [
        "Change weight",
        "Change limits",
        "Change objectives",
        "Invite",
        "Rename",
        "Suspend",
        "Delete",
    ],
    "/operator/hosts": ["Cordon", "Drain", "Restart", "Add host"],
}
DIALOG = "[role=dialog], [role=alertdialog]"
# The tabs of a page that has several sections; those of a snippet's languages are not among them.
SECTIONS = "[role=tablist][aria-label^=Sections] [role=tab]"
THEMES = ("light", "dark")
DESKTOP: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
# Widths of a phone, a tablet and a desktop, in pixels.
WIDTHS = (360, 768, 1440)


def context(
    browser: Browser, access: Access, theme: str = "light", session: StorageState | None = None
) -> BrowserContext:
    scheme: Literal["light", "dark"] = "dark" if theme == "dark" else "light"
    # With reduced motion nothing is looked at half faded in.
    made = browser.new_context(base_url=access.url, color_scheme=scheme, reduced_motion="reduce", storage_state=session)
    made.set_default_timeout(20_000)
    return made


def log_in(page: Page, access: Access) -> None:
    page.goto("/")
    page.get_by_test_id("login-email").fill(access.email)
    page.get_by_test_id("login-password").fill(access.password)
    page.get_by_test_id("login-submit").click()
    page.wait_for_url(re.compile(TENANT))


@pytest.fixture(scope="module")
def session(browser: Browser, access: Access) -> Iterator[StorageState]:
    """One sign-in for all pages: more would meet the limit on sign-ins per minute."""
    opened = context(browser, access)
    log_in(opened.new_page(), access)
    yield opened.storage_state()
    opened.close()


@pytest.fixture
def page(browser: Browser, access: Access, session: StorageState) -> Iterator[Page]:
    """A signed-in page; any error in its console fails the test."""
    opened = context(browser, access, session=session)
    page = opened.new_page()
    complaints = complaints_of(page)
    yield page
    assert complaints == []
    opened.close()


def complaints_of(page: Page) -> list[str]:
    """Return a list that gets all errors in the page's console from now on."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    return complaints


@pytest.fixture(scope="module")
def tab(browser: Browser, access: Access, session: StorageState) -> Iterator[tuple[Page, list[str]]]:
    """A page for all of the console, and its errors: a new one would fetch and compile the console again."""
    opened = context(browser, access, session=session)
    page = opened.new_page()
    yield page, complaints_of(page)
    opened.close()


@pytest.fixture
def shared_page(tab: tuple[Page, list[str]]) -> Iterator[Page]:
    """That page in the light theme, as wide as a desktop's; any error in its console fails the test."""
    page, complaints = tab
    complaints.clear()
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESKTOP)
    yield page
    assert complaints == []


def save_screenshot(page: Page, name: str) -> None:
    """Kept when LORIKEET_SCREENSHOTS names a folder; docs/images was filled in this way."""
    if folder := os.environ.get("LORIKEET_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def watch(page: Page, name: str, test_id: str, value: str) -> None:
    """Collect `value` of the element at each change, in the page: calls from there may come late."""
    page.evaluate(
        f"""() => {{
             window.{name} = [];
             new MutationObserver(() => {{
               const shown = document.querySelector('[data-testid="{test_id}"]');
               if (shown) {name}.push({value});
             }}).observe(document.body, {{subtree: true, childList: true, attributes: true, characterData: true}});
           }}"""
    )


def test_upload_watch_and_stream(page: Page) -> None:
    page.goto(f"{TENANT}/upload")
    watch(page, "states", "staging-status", "shown.dataset.state")
    page.locator("input[type=file]").first.set_input_files(FILES)
    page.get_by_test_id("upload-name").fill("emoji")
    page.get_by_test_id("upload-submit").click()
    expect(page.get_by_test_id("upload-progress")).to_be_visible()
    expect(page.get_by_test_id("validation-report")).to_have_attribute("data-ok", "true", timeout=60_000)
    # Nothing reloads the page: that the state changes shows that events arrive over the websocket.
    expect(page.get_by_test_id("staging-status")).to_have_attribute("data-state", "ready", timeout=60_000)
    assert page.evaluate("states.at(-1)") == "ready"
    save_screenshot(page, "upload")

    page.get_by_test_id("try-in-playground").click()
    page.wait_for_url(re.compile("/playground"))
    expect(page.get_by_test_id("playground-model").first).to_contain_text("emoji")
    assert any(streams(page) for _ in range(3)), "It did not stream."


def streams(page: Page) -> bool:
    """Whether an answer was seen to grow. One may not be: a browser that gets little of the processor draws seldom."""
    page.get_by_test_id("playground-input").fill("How was your day at the beach?")
    watch(page, "texts", "playground-output", "shown.textContent")
    page.get_by_test_id("playground-send").click()
    expect(page.get_by_test_id("playground-output").last).not_to_be_empty(timeout=30_000)
    expect(page.get_by_test_id("playground-send")).to_be_visible(timeout=60_000)
    answer = page.get_by_test_id("playground-output").last.text_content() or ""
    return any(text and text != answer and answer.startswith(text) for text in page.evaluate("texts"))


def test_adapters_answer_side_by_side(page: Page) -> None:
    page.goto(f"{TENANT}/playground?model=pirate")
    for number, name in enumerate(("json-answers", "haiku"), start=1):
        page.get_by_test_id("playground-add").click()
        page.get_by_test_id("playground-model").nth(number).click()
        page.get_by_placeholder("Search, or type name@v2").fill(name)
        page.get_by_role("option", name=name).first.click()
        expect(page.get_by_test_id("playground-model").nth(number)).to_contain_text(name)
    page.get_by_test_id("playground-input").fill("What is the capital of France?")
    page.get_by_test_id("playground-send").click()
    outputs = page.get_by_test_id("playground-output")
    expect(outputs).to_have_count(3)
    expect(page.get_by_test_id("playground-send")).to_be_visible(timeout=60_000)
    answers = [output.inner_text() for output in outputs.all()]
    assert all(answers) and len(set(answers)) == 3, answers
    expect(page.get_by_test_id("playground-cost")).to_have_count(3)
    save_screenshot(page, "playground")


def test_a_refused_upload_shows_the_reason_and_the_fix(page: Page, tmp_path: Path) -> None:
    broken = tmp_path / "adapter_config.json"
    broken.write_text(json.dumps({**json.loads(FILES[0].read_text()), "use_qalora": True}))
    page.goto(f"{TENANT}/upload")
    page.locator("input[type=file]").first.set_input_files([broken, FILES[1]])
    page.get_by_test_id("upload-name").fill("broken")
    page.get_by_test_id("upload-submit").click()
    report = page.get_by_test_id("validation-report")
    expect(report).to_have_attribute("data-ok", "false", timeout=60_000)
    expect(report).to_contain_text("QALoRA")
    page.goto(f"{TENANT}/adapters")
    expect(page.get_by_role("link", name="pirate").first).to_be_visible()
    expect(page.get_by_text("broken", exact=True)).to_have_count(0)


def test_a_wrong_password_is_told_so(browser: Browser, access: Access) -> None:
    opened = context(browser, access)
    page = opened.new_page()
    page.goto("/")
    page.get_by_test_id("login-email").fill(access.email)
    page.get_by_test_id("login-password").fill("wrong")
    page.get_by_test_id("login-submit").click()
    expect(page.get_by_text("do not match")).to_be_visible()
    opened.close()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_accessible_in_both_themes_and_fits_every_width(shared_page: Page, name: str) -> None:
    shared_page.goto(f"{TENANT}{PAGES[name]}")
    expect(shared_page.get_by_role("heading", level=1)).to_be_visible()
    shared_page.wait_for_load_state("networkidle")
    assert broken_rules(shared_page) == []
    # The page follows the device at once, and only its colours change.
    shared_page.emulate_media(color_scheme="dark")
    expect(shared_page.locator("html")).to_have_attribute("data-theme", "dark")
    assert broken_rules(shared_page, COLOURS) == []
    fits_every_width(shared_page, name)
    for tab in shared_page.locator(SECTIONS).all()[1:]:
        section_is_accessible(shared_page, tab)


def section_is_accessible(page: Page, tab: Locator) -> None:
    """Look at a tab in both themes and at the widths of a phone and a tablet."""
    name = tab.inner_text()
    tab.click()
    expect(tab).to_have_attribute("aria-selected", "true")
    # The page is loaded already, so that its load state says nothing about the tab.
    expect(page.get_by_role("tabpanel").first).not_to_be_empty()
    expect(page.locator("[role=tabpanel] .animate-shimmer.bg-fill-2")).to_have_count(0)
    assert broken_rules(page, COLOURS) == [], name
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert broken_rules(page) == [], name
    fits_every_width(page, name)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def fits_every_width(page: Page, name: str) -> None:
    """Check that nothing scrolls sideways at any width, and leave the last one."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": DESKTOP["height"]})
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), (name, width)


@pytest.mark.parametrize("path", DIALOGS)
def test_every_dialog_is_accessible_and_fits_a_phone(shared_page: Page, path: str) -> None:
    page = shared_page
    page.set_viewport_size(PHONE)
    page.goto(f"{TENANT}{path}")
    for name in DIALOGS[path]:
        page.get_by_role("main").get_by_role("button", name=name, exact=True).first.click()
        dialog = page.locator(DIALOG)
        expect(dialog).to_be_visible()
        # What lies behind a dialog is the same for each dialog of a page.
        assert broken_rules(page, within="" if name == DIALOGS[path][0] else DIALOG) == [], name
        # The page follows the device at once, so that one opened dialog is looked at in both themes.
        page.emulate_media(color_scheme="dark")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert broken_rules(page, COLOURS, within=DIALOG) == [], name
        page.emulate_media(color_scheme="light")
        box = dialog.bounding_box()
        assert (
            box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"] and box["height"] <= PHONE["height"]
        ), name
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


@pytest.mark.parametrize("theme", THEMES)
def test_the_login_page_is_accessible(browser: Browser, access: Access, theme: str) -> None:
    opened = context(browser, access, theme)
    page = opened.new_page()
    page.goto("/login")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert broken_rules(page) == []
    opened.close()
