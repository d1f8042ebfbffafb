"""What tenants and operators come to the console for, each done with the keyboard alone.

`Keyboard.reach` presses Tab until the element has the focus: what no Tab reaches fails its test.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx
import pytest
from lorikeet_testing.axe import broken_rules
from lorikeet_testing.launched import Access, Launched
from lorikeet_testing.web import eventually, free_port
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect

from scripts.test_services import services

DEMO = Path(__file__).parents[2] / "demo"
MAX_TABS = 150
LONG_NAME = "🦜 مرحبا بالعالم " + "a-very-long-name-that-ends-nowhere-" + "at-all" * 4
FIRST_ROW = "Details of request"


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], ids=lambda name: str(name)
)
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Access]:
    """The one that all end-to-end tests share, and for the long run one on PostgreSQL."""
    if request.param == "sqlite":
        yield request.getfixturevalue("access")
        return
    with services() as running:
        # Without Redis: the web process then is its own worker, and `make run` starts no other.
        settings = {"LORIKEET_DATABASE_URL": running.database_url, "LORIKEET_SECRET_KEY": "console" * 8}
        launched = Launched(tmp_path_factory.mktemp("postgres") / "var", free_port(), settings)
        try:
            yield launched.start()
        finally:
            launched.stop()


class Keyboard:
    """A signed-in page, and only keys to use it with."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        if text:
            self.page.keyboard.insert_text(text)
        else:
            self.press("Delete")

    def reach(self, target: Locator) -> Locator:
        expect(target).to_be_visible()
        # To find it anew after each Tab would compute the names of all elements of the page.
        element = target.element_handle()
        for _ in range(MAX_TABS):
            is_there, has_focus = element.evaluate(
                "element => [element.isConnected, element === document.activeElement]"
            )
            if has_focus and target.evaluate("element => element === document.activeElement"):
                return target
            if has_focus or not is_there:  # another element has its place now
                element = target.element_handle()
                continue
            self.press("Tab")
        raise AssertionError(f"Tab does not reach {target}")

    def enter(self, target: Locator, text: str) -> None:
        self.reach(target)
        self.press("Control+a")
        self.type(text)

    def do(self, target: Locator) -> None:
        self.reach(target)
        self.press("Enter")

    def palette(self, words: str) -> None:
        """Opens what it offers first for these words."""
        expect(self.page.get_by_role("heading", level=1)).to_be_visible()  # before, nobody listens to keys
        search = self.page.get_by_placeholder(re.compile("Go to a page"))
        for _ in range(3):
            self.press("Control+k")
            with contextlib.suppress(TimeoutError):
                search.wait_for(timeout=7000)
                break
        expect(search).to_be_focused()
        self.page.keyboard.type(words)
        # Enter takes the one that is marked, which follows what was typed a moment later.
        marked = self.page.get_by_role("option", selected=True)
        expect(marked).to_have_text(re.compile(words, re.I))
        self.press("Enter")
        expect(search).to_have_count(0)

    def dialog(self, words: str | re.Pattern[str]) -> Locator:
        """The one that is open; whoever cannot see it well is not left out."""
        dialog = self.page.locator("[role=dialog], [role=alertdialog]")
        expect(dialog).to_contain_text(words)
        assert broken_rules(self.page) == []
        return dialog

    def open(self, label: str, heading: str | None = None) -> None:
        self.palette(label)
        expect(self.page.get_by_role("heading", level=1, name=heading or label)).to_be_visible()


@pytest.fixture(scope="module", params=["light", pytest.param("dark", marks=pytest.mark.long)])
def keyboard(request: pytest.FixtureRequest, browser: Browser, platform: Access) -> Iterator[Keyboard]:
    scheme: Literal["light", "dark"] = "dark" if request.param == "dark" else "light"
    context = browser.new_context(base_url=platform.url, color_scheme=scheme, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    page = context.new_page()
    made = Keyboard(page)
    # Whoever listens only when a key is pressed may be too late for what it opens.
    page.on("filechooser", lambda chooser: None)
    page.goto("/login")
    made.enter(page.get_by_test_id("login-email"), platform.email)
    made.enter(page.get_by_test_id("login-password"), platform.password)
    made.press("Enter")
    page.wait_for_url(re.compile("/t/acme"))
    page.wait_for_load_state("networkidle")
    # One request, so that there is something to look at.
    body = {"model": "pirate", "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]}
    httpx.post(
        f"{platform.url}/v1/chat/completions", json=body, headers=platform.bearer, trust_env=False, timeout=60
    ).raise_for_status()
    yield made
    context.close()


def test_a_key_is_made_and_its_secret_outlives_escape(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.palette("Create an API key")
    keyboard.enter(page.get_by_test_id("key-name"), LONG_NAME)
    keyboard.press("Enter")
    secret = page.get_by_test_id("key-secret")
    expect(secret).to_contain_text("lk_")
    keyboard.press("Escape")
    expect(secret).to_be_visible()
    keyboard.do(page.get_by_role("button", name="Done"))
    expect(secret).to_have_count(0)
    row = page.get_by_role("row").filter(has_text="🦜").first
    expect(row).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "a long name breaks the page"
    box = row.bounding_box()
    assert box and box["height"] < 80, "a long name breaks its row"
    keyboard.do(row.get_by_role("button", name=re.compile("^Revoke")))
    keyboard.do(page.get_by_role("alertdialog").get_by_role("button", name="Revoke key"))
    expect(row).to_have_count(0)
    page.get_by_role("radio", name="Revoked").click()
    expect(row).to_be_visible()


def test_a_person_is_invited(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.palette("Invite a person")
    keyboard.enter(page.get_by_test_id("invite-email"), f"{uuid.uuid4().hex[:8]}@example.org")
    keyboard.press("Enter")
    expect(page.get_by_test_id("invite-link")).to_contain_text("/invitation")
    keyboard.do(page.get_by_role("button", name="Done"))


def test_a_key_gets_a_limit(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Limits")
    keyboard.do(page.get_by_role("button", name="Edit limits of demo"))
    keyboard.enter(page.get_by_label("Requests per minute"), "5000")
    keyboard.press("Enter")
    expect(page.get_by_role("row", name=re.compile("demo"))).to_contain_text("of 5,000")


def test_an_objective_is_set(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Fairness")
    keyboard.do(page.get_by_test_id("slo-edit"))
    keyboard.enter(page.get_by_test_id("slo-first"), "900")
    keyboard.press("Enter")
    expect(page.get_by_test_id("slo-save")).to_have_count(0)
    # The page shows it beside what was measured, which nothing is at first; the dialog always has it.
    keyboard.do(page.get_by_test_id("slo-edit"))
    expect(page.get_by_test_id("slo-first")).to_have_value("900")
    # And lifted: other tests' requests must not be refused for it.
    keyboard.enter(page.get_by_test_id("slo-first"), "")
    keyboard.press("Enter")
    expect(page.get_by_test_id("slo-save")).to_have_count(0)
    keyboard.do(page.get_by_test_id("slo-edit"))
    expect(page.get_by_test_id("slo-first")).to_have_value("")
    keyboard.do(page.get_by_role("dialog").get_by_role("button", name="Cancel"))
    expect(page.get_by_test_id("slo-first")).to_have_count(0)


def test_an_adapter_is_found_and_opened(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Adapters")
    keyboard.enter(page.get_by_role("searchbox"), "pira")
    page.wait_for_url(re.compile("q=pira"))
    expect(page.get_by_role("row")).to_have_count(2)
    keyboard.do(page.get_by_role("link", name="pirate"))
    page.wait_for_url(re.compile("/adapters/pirate"))
    expect(page.get_by_text("Aliases").first).to_be_visible()
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("pira")


def test_a_request_is_opened_and_found_again_by_its_id(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Requests")
    row = page.get_by_role("button", name=re.compile(FIRST_ROW)).first
    keyboard.do(row)
    expect(page.get_by_test_id("waterfall").first).to_be_visible()
    request_id = str(row.get_attribute("aria-label")).rpartition(" ")[2]
    keyboard.palette(request_id)
    page.wait_for_url(re.compile(f"id=.*{request_id}"))
    expect(page.get_by_role("button", name=re.compile(FIRST_ROW))).to_have_count(1)
    page.reload()
    expect(page.get_by_role("button", name=re.compile(FIRST_ROW))).to_have_count(1)


def test_one_time_range_is_chosen_for_all_charts(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Usage")
    chosen = page.get_by_role("radio", name="30d")
    keyboard.reach(chosen)
    keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="90d")).to_be_focused()
    keyboard.press("Enter")
    page.wait_for_url(re.compile("range=90d"))
    keyboard.do(page.get_by_role("link", name="Fairness & SLO"))
    page.wait_for_url(re.compile("/slo.*range=90d"))


def answered(page: Page) -> None:
    expect(page.get_by_test_id("playground-output").last).not_to_be_empty(timeout=30_000)
    expect(page.get_by_test_id("playground-send")).to_be_visible(timeout=60_000)


@pytest.mark.long
def test_the_playground_keeps_every_branch_and_says_what_it_costs(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Playground")
    keyboard.do(page.get_by_test_id("playground-model"))
    expect(page.get_by_placeholder("Search, or type name@v2")).to_be_focused()
    keyboard.type("pirate@v")
    expect(page.get_by_role("dialog").get_by_role("option", selected=True)).to_have_text("pirate@v1")
    assert broken_rules(page) == []
    keyboard.press("Enter")
    expect(page.get_by_role("region", name="Conversation with pirate@v1")).to_be_visible()
    keyboard.enter(page.get_by_test_id("playground-input"), "Hello")
    keyboard.press("Enter")
    answered(page)
    cost = page.get_by_test_id("playground-cost").last
    expect(cost).to_be_visible()
    [billed] = page.request.get(f"/api/tenants/acme/requests?limit=1&model={quote('pirate@v1')}").json()["results"]
    shown = float(cost.inner_text().lstrip("$€"))
    assert shown == pytest.approx(billed["cost_micros"] / 1e6, rel=0.05) and shown > 0

    keyboard.do(page.get_by_role("button", name="Regenerate the answer"))
    branches = page.get_by_test_id("playground-branches")
    expect(branches).to_contain_text("2 of 2")
    answered(page)
    keyboard.do(page.get_by_role("button", name="Edit the message"))
    expect(page.get_by_test_id("playground-edit")).to_be_focused()
    keyboard.enter(page.get_by_test_id("playground-edit"), "What is the capital of France?")
    keyboard.press("Enter")
    expect(branches).to_contain_text("3 of 3")
    answered(page)
    keyboard.do(page.get_by_role("button", name="Previous branch"))
    expect(branches).to_contain_text("2 of 3")
    expect(page.get_by_role("button", name="Previous branch")).to_be_focused()
    keyboard.press("Enter")
    expect(branches).to_contain_text("1 of 3")

    keyboard.open("Requests")
    keyboard.open("Playground")
    expect(branches).to_contain_text("1 of 3")
    page.reload()
    expect(branches).to_contain_text("1 of 3")
    expect(page.get_by_role("region", name="Conversation with pirate@v1")).to_be_visible()


def test_the_playground_combines_adapters(keyboard: Keyboard) -> None:
    page = keyboard.page
    page.goto("/t/acme/playground?model=haiku")
    keyboard.do(page.get_by_test_id("playground-model"))
    expect(page.get_by_placeholder("Search, or type name@v2")).to_be_focused()
    keyboard.press("End")
    marked = page.get_by_role("dialog", name=re.compile("^Choose")).get_by_role("option", selected=True)
    expect(marked).to_have_text("Combine adapters…")
    keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Combine adapters")
    keyboard.do(dialog.get_by_test_id("combine-adapter").nth(1))
    keyboard.type("pirate")
    expect(marked).to_contain_text("pirate")
    keyboard.press("Enter")
    keyboard.enter(dialog.get_by_role("spinbutton", name="Weight of pirate"), "0.5")
    expect(dialog.get_by_role("region", name="curl snippet")).to_contain_text('"model":"haiku+pirate:0.5"')
    assert broken_rules(page) == []
    keyboard.do(dialog.get_by_role("button", name="Use in this column"))
    expect(page.get_by_test_id("playground-model")).to_be_focused()
    keyboard.enter(page.get_by_test_id("playground-input"), "Hello")
    keyboard.press("Enter")
    answered(page)
    cost = page.get_by_test_id("playground-cost")
    expect(cost).to_be_visible()  # the ledger has it
    [billed] = page.request.get("/api/tenants/acme/requests?limit=1").json()["results"]
    assert re.fullmatch(r"haiku@v\d+:1\+pirate@v\d+:0.5", billed["model"])
    shown = float(cost.inner_text().lstrip("$€"))
    assert shown == pytest.approx(billed["cost_micros"] / 1e6, rel=0.05) and shown > 0


@pytest.mark.parametrize(("width", "model"), [(1440, "pirate"), pytest.param(390, "haiku", marks=pytest.mark.long)])
def test_the_playground_compares_and_hands_on_what_was_asked(keyboard: Keyboard, width: int, model: str) -> None:
    page = keyboard.page
    page.set_viewport_size({"width": width, "height": 900 if width > 400 else 844})
    page.goto(f"/t/acme/playground?model={model}")
    keyboard.do(page.get_by_test_id("playground-add"))
    expect(page.get_by_test_id("playground-model")).to_have_count(2)
    if width < 1280:
        keyboard.do(page.get_by_role("button", name="Sampling"))
    keyboard.enter(page.get_by_role("spinbutton", name="Max tokens"), "24")
    keyboard.do(page.get_by_text("Penalties and cut-offs").filter(visible=True))
    keyboard.enter(page.get_by_role("spinbutton", name="Top-k"), "40")
    if width < 1280:
        assert broken_rules(page) == []
        keyboard.press("Escape")
    keyboard.enter(page.get_by_test_id("playground-input"), "What is the capital of France?")
    keyboard.press("Enter")
    answered(page)

    keyboard.do(page.get_by_test_id("playground-diff"))
    expect(page.get_by_test_id("playground-differences").locator("ins").first).to_be_visible()
    assert broken_rules(page) == []
    keyboard.press("Escape")
    keyboard.do(page.get_by_role("button", name="The request as code").first)
    keyboard.reach(page.get_by_role("tab", name="curl"))
    for language in ("Python", "TypeScript"):
        keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=language)).to_be_focused()
    code = page.get_by_role("region", name="TypeScript snippet")
    expect(code).to_contain_text("...({ top_k: 40 } as object)")
    expect(code).to_contain_text("What is the capital of France?")
    assert broken_rules(page) == []
    keyboard.press("Escape")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen"

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    keyboard.do(page.get_by_test_id("playground-link"))
    expect(page.get_by_text("Link copied", exact=True)).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    page.goto("about:blank")
    page.goto(link)
    expect(page.get_by_test_id("playground-model")).to_have_count(2)
    expect(page.get_by_test_id("playground-output")).to_have_count(0)
    if width < 1280:
        keyboard.do(page.get_by_role("button", name="Sampling"))
    expect(page.get_by_role("spinbutton", name="Top-k")).to_have_value("40")
    if width < 1280:
        keyboard.press("Escape")
    keyboard.do(page.get_by_role("button", name="Restore it"))
    expect(page.get_by_test_id("playground-output")).to_have_count(2)
    page.set_viewport_size({"width": 1280, "height": 720})


def test_a_request_is_replayed_by_the_version_that_answered(keyboard: Keyboard) -> None:
    page = keyboard.page
    page.goto("/t/acme/requests?adapter=pirate")
    row = page.get_by_role("button", name=re.compile(FIRST_ROW)).first
    keyboard.do(row)
    keyboard.do(page.get_by_role("link", name=re.compile("in the playground$")))
    page.wait_for_url(re.compile("/playground"))
    expect(page.get_by_test_id("playground-model")).to_have_text("pirate@v1")


def test_the_owners_of_memory_pages_are_a_table(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Hosts & GPUs")
    keyboard.do(page.get_by_role("button", name="Show owners"))
    expect(page.get_by_role("table", name="Pages by owner")).to_contain_text("pirate")


def test_an_operator_makes_weighs_suspends_and_deletes_a_tenant(keyboard: Keyboard) -> None:
    page = keyboard.page
    slug = f"t-{uuid.uuid4().hex[:8]}"
    keyboard.open("Tenants")
    keyboard.do(page.get_by_test_id("create-tenant"))
    keyboard.enter(page.get_by_test_id("tenant-name"), LONG_NAME)
    keyboard.enter(page.get_by_test_id("tenant-slug"), slug)
    keyboard.enter(page.get_by_test_id("tenant-owner"), f"owner@{slug}.example")
    keyboard.press("Enter")
    expect(page.get_by_test_id("tenant-link")).to_be_visible()
    keyboard.do(page.get_by_role("button", name="Done"))
    keyboard.enter(page.get_by_role("searchbox"), slug)
    expect(page.locator("tbody tr")).to_have_count(1)  # else the rows may be replaced under the focus
    keyboard.do(page.locator(f'a[href$="/operator/tenants/{slug}"]'))
    keyboard.do(page.get_by_role("button", name="Change weight"))
    keyboard.enter(page.get_by_test_id("weight"), "2.5")
    keyboard.press("Enter")
    expect(page.get_by_label("Operator settings")).to_contain_text("2.5")
    keyboard.do(page.get_by_test_id("suspend"))
    keyboard.enter(page.get_by_test_id("suspend-reason"), "Bills.")
    keyboard.do(page.get_by_role("alertdialog").get_by_role("button", name="Suspend"))
    expect(page.get_by_text("Bills.").first).to_be_visible()
    keyboard.do(page.get_by_test_id("delete-tenant"))
    dialog = page.get_by_role("alertdialog")
    expect(dialog).to_contain_text("cannot be undone")
    keyboard.enter(page.get_by_test_id("delete-confirm"), slug)
    keyboard.do(dialog.get_by_role("button", name="Delete for good"))
    expect(page.get_by_text("Deleted").first).to_be_visible()


def test_an_adapter_is_uploaded_tried_as_a_canary_and_promoted(keyboard: Keyboard, platform: Access) -> None:
    page = keyboard.page
    name = f"a-{uuid.uuid4().hex[:8]}"
    uploaded(keyboard, name, DEMO / "uploads" / "emoji")
    uploaded(keyboard, name, DEMO / "adapters" / "haiku")

    def live() -> dict[str, Any]:
        path = f"{platform.url}/api/tenants/acme/adapters/{name}"
        (alias,) = httpx.get(path, headers=platform.bearer, trust_env=False).json()["aliases"]
        return dict(alias)

    began = live()["updated_at"]
    page.goto(f"/t/acme/adapters/{name}")
    alias = page.get_by_label(f"{name}@live", exact=True)
    keyboard.do(alias.get_by_role("button", name="Start a canary"))
    dialog = keyboard.dialog("A share of requests")
    keyboard.reach(dialog.get_by_role("slider"))
    keyboard.press("ArrowRight")
    expect(dialog).to_contain_text("6%")
    keyboard.do(dialog.get_by_role("button", name="Start canary"))
    expect(alias.get_by_role("button", name="Promote v2")).to_be_visible()
    assert (live()["canary_percent"], live()["updated_at"]) == (6, began)
    keyboard.do(alias.get_by_role("button", name="End canary"))
    expect(alias.get_by_role("button", name="Start a canary")).to_be_visible()
    assert (live()["canary"], live()["version"], live()["updated_at"]) == (None, 1, began)
    keyboard.do(alias.get_by_role("button", name="Start a canary"))
    keyboard.do(page.get_by_role("dialog").get_by_role("button", name="Start canary"))
    keyboard.do(alias.get_by_role("button", name="Promote v2"))
    expect(alias.get_by_role("button", name="Roll back to v1")).to_be_visible()
    assert (live()["version"], live()["canary"]) == (2, None)
    assert live()["updated_at"] > began
    keyboard.do(page.get_by_role("button", name=f"Archive {name}"))
    keyboard.dialog("The adapter can no longer be called")
    keyboard.do(page.get_by_role("alertdialog").get_by_role("button", name="Archive adapter"))
    page.wait_for_url(re.compile("/adapters$"))
    archived = page.get_by_label("Archived adapters").get_by_role("listitem").filter(has_text=name)
    keyboard.do(archived.get_by_role("button", name=f"Delete {name}"))
    keyboard.dialog("This cannot be undone")
    keyboard.do(page.get_by_role("alertdialog").get_by_role("button", name="Delete adapter"))
    expect(archived).to_have_count(0)


def uploaded(keyboard: Keyboard, name: str, folder: Path) -> None:
    """Until it is ready. The browser's own window for files is the one thing that is not done with keys."""
    page = keyboard.page
    page.goto(f"/t/acme/upload?name={name}")
    page.wait_for_load_state("networkidle")  # what comes later may take the focus's element with it
    keyboard.reach(page.locator("input[type=file]").first)
    with page.expect_file_chooser() as chooser:
        keyboard.press("Enter")
    chooser.value.set_files([folder / "adapter_config.json", folder / "adapter_model.safetensors"])
    expect(page.get_by_text("The browser found no problems")).to_be_visible()  # before that, nothing can be sent
    keyboard.enter(page.get_by_test_id("upload-name"), name)
    keyboard.press("Enter")
    expect(page.get_by_test_id("staging-status")).to_have_attribute("data-state", "ready", timeout=60_000)


def test_an_operator_cordons_a_host_and_takes_it_back(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Hosts & staging")
    host = page.get_by_label("Host local")
    keyboard.do(host.get_by_role("button", name="Cordon"))
    dialog = page.get_by_role("alertdialog")
    expect(dialog).to_contain_text("No other host serves")
    keyboard.do(dialog.get_by_role("button", name="Cordon"))
    keyboard.do(host.get_by_role("button", name="Resume service"))
    keyboard.do(page.get_by_role("alertdialog").get_by_role("button", name="Resume service"))
    expect(host.get_by_role("button", name="Cordon")).to_be_visible()


def test_an_operator_drains_a_host_and_takes_it_back(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Hosts & staging")
    host = page.get_by_label("Host local")
    keyboard.do(host.get_by_role("button", name="Drain"))
    keyboard.dialog("It receives nothing new")
    keyboard.do(page.get_by_role("alertdialog").get_by_role("button", name="Drain"))
    expect(host).to_contain_text("can be stopped")
    keyboard.do(host.get_by_role("button", name="Resume service"))
    keyboard.dialog("It receives requests again")
    keyboard.do(page.get_by_role("alertdialog").get_by_role("button", name="Resume service"))
    expect(host.get_by_role("button", name="Drain")).to_be_visible()
    expect(host).to_contain_text("online")


def test_an_operator_restarts_a_host(keyboard: Keyboard, platform: Access) -> None:
    page = keyboard.page
    keyboard.open("Hosts & staging")
    host = page.get_by_label("Host local")
    keyboard.do(host.get_by_role("button", name="Restart"))
    dialog = keyboard.dialog("refused with 503 until it is back")
    keyboard.reach(dialog.get_by_role("combobox"))
    keyboard.press("ArrowUp")
    expect(dialog.get_by_role("combobox")).to_have_value("60")
    keyboard.do(dialog.get_by_role("button", name="Restart"))
    expect(host.get_by_role("status")).to_contain_text("Restart requested ")
    expect(page.get_by_text("local is back", exact=True)).to_be_visible(timeout=60_000)
    body = {"model": "pirate", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}

    def answered() -> bool:
        address = f"{platform.url}/v1/chat/completions"
        return httpx.post(address, json=body, headers=platform.bearer, trust_env=False, timeout=60).is_success

    # The web process finds it again by itself, a moment after the host has said that it is back.
    eventually(answered, 15, what="the host that is back answers")


def test_an_operator_makes_a_token_for_a_host_and_takes_it_back(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Hosts & staging")
    keyboard.do(page.get_by_role("button", name="Add host"))
    page.wait_for_url(re.compile("add=true"))
    name = f"gpu-{uuid.uuid4().hex[:6]}"
    keyboard.dialog("one machine can use once to join")
    keyboard.enter(page.get_by_label("Name (optional)"), name)
    keyboard.press("Enter")
    expect(page.get_by_test_id("join-command")).to_contain_text("--token")
    keyboard.dialog("Start its engine")
    keyboard.press("Escape")
    expect(page.get_by_test_id("join-command")).to_be_visible()
    keyboard.do(page.get_by_role("button", name="Done"))
    token = page.get_by_role("listitem").filter(has_text=name)
    keyboard.do(token.get_by_role("button"))
    keyboard.dialog("cannot join and needs a new token")
    keyboard.do(page.get_by_role("alertdialog").get_by_role("button", name="Revoke"))
    expect(page.get_by_role("alertdialog")).to_have_count(0)
    expect(token).to_have_count(0)


def test_an_operator_sees_who_did_that(keyboard: Keyboard) -> None:
    page = keyboard.page
    keyboard.open("Platform audit log", "Platform audit log")
    keyboard.enter(page.get_by_label("Subject"), "local")
    page.wait_for_url(re.compile("target=local"))
    expect(page.get_by_role("list", name="Changes").get_by_text("host.").first).to_be_visible()
    keyboard.do(page.get_by_role("list", name="Changes").get_by_role("button").first)
    expect(page.get_by_text("Request", exact=True).first).to_be_visible()


def test_the_theme_is_switched(keyboard: Keyboard) -> None:
    page = keyboard.page
    root = page.locator("html")
    before = str(root.get_attribute("data-theme"))
    keyboard.palette("Switch to the")
    expect(root).not_to_have_attribute("data-theme", before)
    keyboard.palette("Switch to the")
    expect(root).to_have_attribute("data-theme", before)
