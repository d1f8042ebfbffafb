// Opens every page of a running console, with each of its tabs, in both themes and five sizes.
//   CONSOLE_URL, CONSOLE_EMAIL, CONSOLE_PASSWORD   where and as whom (an account with at least one tenant)
//   CONSOLE_TENANT                                 which tenant; the first one otherwise
//   --axe            run axe-core on each page and fail on any violation
//   --screens        save a picture of each page below test-results/screens (ignored by git)
//   --dialogs        open the dialogs of each page too
//   --states=A,B     "full" as the platform is (the default), "loading" while no answer comes, "failing" when each is an
//                    error, "cut" when no connection comes about, "forbidden" and "missing" when each is 403 or 404,
//                    "empty" of a tenant made for this (as an operator)
//   --only=A,B --sizes=wide,laptop,tablet,phone,narrow --themes=light,dark
import axe from "axe-core";
import { mkdir } from "node:fs/promises";
import { chromium } from "playwright-core";

const url = process.env.CONSOLE_URL ?? "http://127.0.0.1:8000";
const credentials = { email: process.env.CONSOLE_EMAIL ?? "", password: process.env.CONSOLE_PASSWORD ?? "" };
const flag = (name) => process.argv.includes(`--${name}`);
const list = (name, otherwise) =>
  process.argv
    .find((argument) => argument.startsWith(`--${name}=`))
    ?.slice(name.length + 3)
    .split(",") ?? otherwise;
const only = list("only");
const screens = new URL("../../test-results/screens/", import.meta.url).pathname;

const SIZES = {
  wide: { width: 1440, height: 900 },
  laptop: { width: 900, height: 900 },
  tablet: { width: 768, height: 1024 },
  phone: { width: 390, height: 844 },
  narrow: { width: 360, height: 740 },
};
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const PAGES = [
  "",
  "playground",
  "adapters",
  "upload",
  "batches",
  "requests",
  "usage",
  "limits",
  "slo",
  "hosts",
  "keys",
  "members",
  "webhooks",
  "audit",
  "settings",
  "account",
  "account?tab=security",
  "account?tab=appearance",
];
const OPERATOR_PAGES = ["operator", "operator/tenants", "operator/hosts", "operator/audit"];
// Buttons that ask before they do anything.
const OPENS_A_DIALOG =
  /^(Create|New|Add|Invite|Edit|Set|Change|Rename|Rotate|Revoke|Remove|Delete|Archive|Suspend|Cordon|Drain|Promote|Canary|Code|Compare effect)/;
const refusal = (status, code, message, fix) => ({
  status,
  json: { error: { code, message, fix, param: null, request_id: "req_0" } },
});
const ANSWERS = {
  failing: refusal(
    503,
    "database_unavailable",
    "The database cannot be reached.",
    "Try again in a moment; the operator sees it in the log.",
  ),
  forbidden: refusal(403, "permission_denied", "Your role does not allow this.", "Ask an admin of the tenant."),
  missing: refusal(404, "not_found", "This is not there any more.", "Go back to the list."),
};

let failures = 0;

function fail(text) {
  failures += 1;
  console.error(text);
}

async function json(page, path) {
  return (await page.request.get(`${url}/api/${path}`)).json();
}

async function pages(page, state) {
  const session = await json(page, "session");
  const tenant = process.env.CONSOLE_TENANT && state !== "empty" ? process.env.CONSOLE_TENANT : session.tenants[0].slug;
  const names = [...PAGES, ...(session.user.is_operator ? [...OPERATOR_PAGES, `operator/tenants/${tenant}`] : [])];
  const found = names.map((name) => [name.replaceAll(/[/?=]/g, "-") || "overview", `/t/${tenant}/${name}`]);
  const [adapter] = await json(page, `tenants/${tenant}/adapters?limit=1`);
  if (adapter) found.push(["adapter", `/t/${tenant}/adapters/${adapter.name}`]);
  const { results: [request] = [] } = await json(page, `tenants/${tenant}/requests?limit=1`);
  if (request) found.push(["request", `/t/${tenant}/requests?open=${request.id}`]);
  return found.filter(([name]) => !only || only.includes(name));
}

async function check(page, name) {
  if (!flag("axe")) return;
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const violation of violations) {
    fail(`${name}: ${violation.id}: ${violation.help}`);
    violation.nodes
      .slice(0, 5)
      .forEach((node) =>
        console.error(
          `    ${node.target.join(" ")}  ${node.html.slice(0, 120)}\n      ${node.failureSummary?.split("\n")[1]?.trim()}`,
        ),
      );
  }
}

/** Looks at what is on the screen now. */
async function look(page, name) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) fail(`${name}: the page is ${wide} px wider than the screen`);
  await check(page, name);
  if (flag("screens")) await page.screenshot({ path: `${screens}${name}.png`, fullPage: flag("full-height") });
}

async function visitPage(page, name, path, fails = false) {
  await page.goto(url + path, { waitUntil: "networkidle", timeout: 8000 }).catch(() => undefined);
  // The console asks again twice before it says that something failed.
  if (fails)
    await page
      .getByRole("alert")
      .first()
      .waitFor({ timeout: 8000 })
      .catch(() => fail(`${name}: nothing says that it failed`));
  await page.waitForTimeout(400);
  await look(page, name);
  const tabs = await page.locator("[role=tablist][aria-label^=Sections] [role=tab]").all();
  for (const tab of tabs.slice(1)) {
    const label = await tab.textContent();
    await tab.click();
    await page.waitForLoadState("networkidle");
    await page.waitForTimeout(400);
    await look(page, `${name}-${label.toLowerCase().replaceAll(" ", "-")}`);
  }
}

async function visitDialogs(page, name, path) {
  const buttons = page.locator("main").getByRole("button", { name: OPENS_A_DIALOG, disabled: false });
  const labels = await buttons.evaluateAll((found) =>
    found.map((button) => button.getAttribute("aria-label") ?? button.textContent.trim()),
  );
  const seen = new Set();
  for (const label of labels) {
    const kind = label.split(" ")[0];
    if (seen.has(kind)) continue;
    seen.add(kind);
    await page
      .locator("main")
      .getByRole("button", { name: label, exact: true })
      .first()
      .click({ timeout: 2000 })
      .catch(() => undefined);
    const dialog = page.locator("[role=dialog], [role=alertdialog]").first();
    if (
      !(await dialog.waitFor({ timeout: 1500 }).then(
        () => true,
        () => false,
      ))
    )
      continue;
    await page.waitForTimeout(250);
    await look(page, `${name}-dialog-${kind.toLowerCase()}`);
    await page.goto(url + path, { waitUntil: "networkidle", timeout: 8000 }).catch(() => undefined);
  }
}

/** Which answers the page gets besides its session. */
async function prepare(context, state) {
  const api = (address) => address.pathname.startsWith("/api/") && !/\/api\/session$/.test(address.pathname);
  if (state === "loading") await context.route(api, () => undefined);
  if (state === "cut") await context.route(api, (route) => route.abort("connectionreset"));
  if (state in ANSWERS) await context.route(api, (route) => route.fulfill(ANSWERS[state]));
}

async function signIn(page, { email, password }) {
  await page.goto(`${url}/login`);
  await page.getByTestId("login-email").fill(email);
  await page.getByTestId("login-password").fill(password);
  await page.getByTestId("login-submit").click();
  await page.waitForURL(/\/t\//);
}

/** A new tenant with nothing in it, and its owner. */
async function emptyTenant(browser) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await signIn(page, credentials);
  const owner = { email: `owner-${Date.now()}@empty.example`, password: "an empty tenant's password" };
  const headers = { "X-CSRFToken": (await json(page, "session")).csrf_token, Origin: url };
  const data = { slug: `empty-${Date.now()}`, name: "An empty tenant", owner: owner.email };
  const made = await page.request.post(`${url}/api/operator/tenants`, { data, headers });
  if (!made.ok()) throw new Error(`An empty tenant could not be made: ${await made.text()}`);
  const { link } = await made.json();
  const other = await browser.newContext();
  const csrf = (await (await other.request.get(`${url}/api/session`)).json()).csrf_token;
  const token = new URL(link, url).hash.replace(/^#(token=)?/, "") || new URL(link, url).searchParams.get("token");
  const accepted = await other.request.post(`${url}/api/invitations/accept`, {
    data: { token, name: "Owner", password: owner.password },
    headers: { "X-CSRFToken": csrf, Origin: url },
  });
  if (!accepted.ok()) throw new Error(`The invitation was not accepted: ${await accepted.text()}`);
  await context.close();
  await other.close();
  return owner;
}

/** One sign-in for a state: more would meet the limit on sign-ins per minute. */
async function signedIn(browser, state) {
  const context = await browser.newContext();
  await signIn(await context.newPage(), state === "empty" ? await emptyTenant(browser) : credentials);
  const storageState = await context.storageState({ indexedDB: false });
  await context.close();
  return storageState;
}

async function visitAll(browser, state, storageState, theme, size) {
  const options = { viewport: SIZES[size], colorScheme: theme, reducedMotion: "reduce" };
  const suffix = `${state}-${theme}-${size}`;
  if (state === "full" && (!only || only.includes("login"))) {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    for (const name of ["login", "forgot-password", "reset-password"])
      await visitPage(page, `${name}-${suffix}`, `/${name}`);
    await context.close();
  }
  const context = await browser.newContext({ ...options, storageState });
  await prepare(context, state);
  const page = await context.newPage();
  const fails = state in ANSWERS || state === "cut";
  page.on(
    "console",
    (message) => message.type() === "error" && !fails && fail(`${suffix} ${page.url()}: console: ${message.text()}`),
  );
  page.on("pageerror", (error) => fail(`${suffix} ${page.url()}: ${error.message}`));
  for (const [name, path] of await pages(page, state)) {
    await visitPage(page, `${name}-${suffix}`, path, fails);
    if (flag("dialogs") && state === "full") await visitDialogs(page, `${name}-${suffix}`, path);
  }
  if (flag("dialogs") && state === "full") {
    await page.keyboard.press("Control+k");
    await page.waitForTimeout(500);
    await look(page, `palette-${suffix}`);
  }
  await context.close();
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ARGUMENTS });
if (flag("screens")) await mkdir(screens, { recursive: true });
for (const state of list("states", ["full"])) {
  const storageState = await signedIn(browser, state);
  for (const theme of list("themes", ["light", "dark"]))
    for (const size of list("sizes", Object.keys(SIZES))) await visitAll(browser, state, storageState, theme, size);
}
await browser.close();
console.log(failures === 0 ? "No problems found." : `${failures} problems.`);
process.exit(failures === 0 ? 0 : 1);
