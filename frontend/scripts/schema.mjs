// Types of the API from its OpenAPI document. `write` makes src/api/schema.d.ts, `check` fails when it is out of date.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const source = new URL("../openapi.json", import.meta.url);
const target = new URL("../src/api/schema.d.ts", import.meta.url);
const HEADER = "// Generated from openapi.json by `npm run gen`. Do not edit.\n\n";

const text = HEADER + astToString(await openapiTS(await readSchema(), { alphabetize: true }));

/**
 * The part of the document that the console uses: the paths of its own API and the version, their successful answers (`errorFrom` reads
 * errors), and the schemas that these refer to or that src/api/types.ts names.
 */
async function readSchema() {
  const schema = JSON.parse(await readFile(source, "utf8"));
  schema.paths = Object.fromEntries(
    Object.entries(schema.paths).filter(([path]) => path.startsWith("/api/") || path === "/version"),
  );
  for (const path of Object.values(schema.paths))
    for (const { responses = {} } of Object.values(path))
      for (const status of Object.keys(responses)) if (status >= "400") delete responses[status];
  delete schema.components.responses; // only errors refer to them
  const all = schema.components.schemas;
  const types = await readFile(new URL("../src/api/types.ts", import.meta.url), "utf8");
  const used = new Set();
  const follow = (names) => {
    for (const name of names)
      if (all[name] && !used.has(name)) {
        used.add(name);
        follow(references(all[name]));
      }
  };
  follow([...references(schema.paths), ...[...types.matchAll(/Schemas\["(\w+)"\]/g)].map(([, name]) => name)]);
  schema.components.schemas = Object.fromEntries(Object.entries(all).filter(([name]) => used.has(name)));
  return schema;
}

function references(part) {
  return [...JSON.stringify(part).matchAll(/#\/components\/schemas\/([\w.-]+)/g)].map(([, name]) => name);
}

if (process.argv[2] === "write") {
  await writeFile(target, text);
  console.log("Wrote src/api/schema.d.ts.");
} else if ((await readFile(target, "utf8").catch(() => "")) !== text) {
  console.error(
    "src/api/schema.d.ts does not match openapi.json. Run `npm run gen` in frontend/ and commit the result.",
  );
  process.exit(1);
}
