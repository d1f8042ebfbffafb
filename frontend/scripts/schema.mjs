// Types of the API from its OpenAPI document. `write` makes src/api/schema.d.ts, `check` fails when it is out of date.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const source = new URL("../openapi.json", import.meta.url);
const target = new URL("../src/api/schema.d.ts", import.meta.url);
const HEADER = "// Generated from openapi.json by `npm run gen`. Do not edit.\n\n";

const text = HEADER + astToString(await openapiTS(source, { alphabetize: true }));

if (process.argv[2] === "write") {
  await writeFile(target, text);
  console.log("Wrote src/api/schema.d.ts.");
} else if ((await readFile(target, "utf8").catch(() => "")) !== text) {
  console.error(
    "src/api/schema.d.ts does not match openapi.json. Run `npm run gen` in frontend/ and commit the result.",
  );
  process.exit(1);
}
