// What a browser downloads to show each page first: the entry, the page's chunk and everything both import, each as the
// .gz beside it, which is what our own process sends (.br, where a browser takes it, is smaller). Fails above the limit,
// and where a .gz is missing. Fonts are listed apart: text is readable before they arrive.
import { readFile, readdir, stat } from "node:fs/promises";

const LIMIT = 200_000;
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(await readFile(new URL(".vite/manifest.json", dist), "utf8"));

function closure(key, found = new Set()) {
  if (found.has(key)) return found;
  found.add(key);
  (manifest[key].imports ?? []).forEach((next) => closure(next, found));
  return found;
}

async function bytesSent(file) {
  return (await stat(new URL(`${file}.gz`, dist))).size;
}

const sent = new Map();
async function size(file) {
  if (!sent.has(file)) sent.set(file, await bytesSent(file));
  return sent.get(file);
}

async function firstLoad(keys) {
  const files = new Set(["index.html", "theme.js"]);
  for (const key of keys) {
    files.add(manifest[key].file);
    (manifest[key].css ?? []).forEach((file) => files.add(file));
  }
  const sizes = await Promise.all([...files].map(size));
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}

const kB = (bytes) => `${(bytes / 1000).toFixed(1).padStart(6)} kB`;
// Every page but those before a tenant is chosen is shown inside the shell.
const SHELL = "src/app/shell.tsx";
const ALONE = /login|no-tenant/;
const pages = Object.keys(manifest).filter((key) => /-page\.tsx$/.test(key) && manifest[key].isDynamicEntry);
const rows = await Promise.all(
  pages.map(async (page) => [
    page.split("/").at(-1),
    await firstLoad(new Set([...closure("index.html"), ...(ALONE.test(page) ? [] : closure(SHELL)), ...closure(page)])),
  ]),
);
rows.sort((a, b) => b[1] - a[1]).forEach(([page, bytes]) => console.log(`${kB(bytes)}  ${page}`));

const assets = new URL("assets/", dist);
const fonts = (await readdir(assets)).filter((name) => name.endsWith(".woff2"));
for (const font of fonts) console.log(`${kB((await stat(new URL(font, assets))).size)}  ${font} (font)`);

const largest = rows[0][1];
if (largest > LIMIT) {
  console.error(
    `The first load of ${rows[0][0]} is ${kB(largest).trim()}; the limit is ${kB(LIMIT).trim()}. Load part of it lazily.`,
  );
  process.exit(1);
}
