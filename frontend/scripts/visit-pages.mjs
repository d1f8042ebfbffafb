// Opens every page of a running console in both themes and three sizes.
//   CONSOLE_URL, CONSOLE_EMAIL, CONSOLE_PASSWORD   where and as whom (an account with at least one tenant)
//   CONSOLE_TENANT                                 which tenant; the first one otherwise
//   --axe       run axe-core on each page and fail on any violation
//   --screens   save a picture of each page below test-results/screens (ignored by git)
import axe from "axe-core";
import { mkdir } from "node:fs/promises";
import { chromium } from "playwright-core";

const url = process.env.CONSOLE_URL ?? "http://127.0.0.1:8000";
const credentials = { email: process.env.CONSOLE_EMAIL ?? "", password: process.env.CONSOLE_PASSWORD ?? "" };
const wantAxe = process.argv.includes("--axe");
const wantScreens = process.argv.includes("--screens");
const only = process.argv.find((argument) => argument.startsWith("--only="))?.slice("--only=".length);
const screens = new URL("../../test-results/screens/", import.meta.url).pathname;

const SIZES = { wide: { width: 1440, height: 900 }, phone: { width: 390, height: 844 }, narrow: { width: 360, height: 740 } };
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ARGUMENTS });
let failures = 0;

function fail(text) {
  failures += 1;
  console.error(text);
}

async function pages(page) {
  const session = await (await page.request.get(`${url}/api/session`)).json();
  const tenant = (process.env.CONSOLE_TENANT ?? session.tenants[0].slug);
  const adapters = await (await page.request.get(`${url}/api/tenants/${tenant}/adapters`)).json();
  const names = ["", "playground", "adapters", "upload", "batches", "requests", "usage", "limits", "slo", "hosts", "keys", "members", "webhooks", "audit", "settings", "operator", "operator/tenants", `operator/tenants/${tenant}`, "operator/hosts", "operator/audit"];
  const found = names.map((name) => [name.replaceAll("/", "-") || "overview", `/t/${tenant}/${name}`]);
  if (adapters[0]) found.push(["adapter", `/t/${tenant}/adapters/${adapters[0].name}`]);
  return found.filter(([name]) => !only || only.split(",").includes(name));
}

async function check(page, name) {
  if (!wantAxe) return;
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const violation of violations) {
    fail(`${name}: ${violation.id}: ${violation.help}`);
    violation.nodes.slice(0, 5).forEach((node) => console.error(`    ${node.target.join(" ")}  ${node.html.slice(0, 120)}\n      ${node.failureSummary?.split("\n")[1]?.trim()}`));
  }
}

async function visitPage(page, name, path) {
  await page.goto(url + path, { waitUntil: "networkidle" }).catch(() => page.waitForTimeout(500));
  await page.waitForTimeout(400);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) fail(`${name}: the page is ${wide} px wider than the screen`);
  await check(page, name);
  if (wantScreens) await page.screenshot({ path: `${screens}${name}.png` });
}

async function visitAll(theme, size) {
  const context = await browser.newContext({ viewport: SIZES[size], colorScheme: theme, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && fail(`${theme} ${size}: console: ${message.text()}`));
  page.on("pageerror", (error) => fail(`${theme} ${size}: ${error.message}`));
  if (!only || only.includes("login")) await visitPage(page, `login-${theme}-${size}`, "/login");
  await page.goto(`${url}/login`);
  await page.getByTestId("login-email").fill(credentials.email);
  await page.getByTestId("login-password").fill(credentials.password);
  await page.getByTestId("login-submit").click();
  await page.waitForURL(/\/t\//);
  for (const [name, path] of await pages(page)) await visitPage(page, `${name}-${theme}-${size}`, path);
  await context.close();
}

if (wantScreens) await mkdir(screens, { recursive: true });
for (const theme of ["light", "dark"]) for (const size of Object.keys(SIZES)) await visitAll(theme, size);
await browser.close();
console.log(failures === 0 ? "No problems found." : `${failures} problems.`);
process.exit(failures === 0 ? 0 : 1);
