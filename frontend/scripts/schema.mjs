// Types of the API from its OpenAPI document. `write` makes src/api/schema.d.ts, `check` fails when it is out of date.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const source = new URL("../openapi.json", import.meta.url);
const target = new URL("../src/api/schema.d.ts", import.meta.url);
const HEADER = "// Generated from openapi.json by `npm run gen`. Do not edit.\n";
const METHODS = ["get", "put", "post", "patch", "delete"];

const text = await generate(await readSchema());

/**
 * The part of the document that the console uses: the paths of its own API and the version, their successful answers
 * (`errorFrom` reads errors), and the schemas that these refer to or that src/api/types.ts names.
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
  follow([...references(schema.paths), ...[...types.matchAll(/Schema\.(\w+)/g)].map(([, name]) => name)]);
  schema.components.schemas = Object.fromEntries(Object.entries(all).filter(([name]) => used.has(name)));
  return JSON.parse(JSON.stringify(schema, withoutEnumLists));
}

function references(part) {
  return [...JSON.stringify(part).matchAll(/#\/components\/schemas\/([\w.-]+)/g)].map(([, name]) => name);
}

/** Leaves the values of an enumeration out of its description: they are its type. */
function withoutEnumLists(key, value) {
  if (key !== "description" || typeof value !== "string") return value;
  return value.replace(/^\* `.*` - .*$/gm, "").trim() || undefined;
}

/** Each schema as a type of its name, and `Operations`: the `input` and the `answer` of each method and address. */
async function generate(schema) {
  const operations = Object.entries(schema.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => [`${method.toUpperCase()} ${path}`, item[method]]),
  );
  const all = { ...schema.components.schemas };
  operations.forEach(([, operation], index) => (all[`Operation.${index}`] = shape(operation)));
  const tree = await openapiTS({ ...schema, paths: {}, components: { schemas: all } }, { alphabetize: true });
  const [, lines] = /^ {4}schemas: \{\n(.*?)^ {4}\};/ms.exec(astToString(tree));
  const members = lines
    .replace(/components\["schemas"\]\["(\w+)"\]/g, "$1")
    .replace(/^ {4}/gm, "")
    .split(/(?<=^ {4}\S[^\n]*;\n|^ {4}\};\n)/m);
  const isOperation = (member) => member.includes('"Operation.');
  const schemas = members
    .filter((member) => !isOperation(member))
    .map((member) => member.replace(/^ {4}(\w+): /m, "    export type $1 = ").replace(/^ {4}/gm, ""));
  const routes = members
    .filter(isOperation)
    .map((member) => member.replace(/"Operation\.(\d+)"/, (_, index) => `"${operations[Number(index)][0]}"`));
  return `${HEADER}\n${schemas.join("")}\nexport interface Operations {\n${routes.join("")}}\n`;
}

/** An operation as a schema: its `input` consists of the parameters of the path, `query` and `body`. */
function shape({ parameters = [], requestBody, responses = {} }) {
  const named = (place) => parameters.filter((parameter) => parameter.in === place);
  const object = (list) => ({
    type: "object",
    properties: Object.fromEntries(
      list.map(({ name, schema, description }) => [name, { ...schema, description, default: undefined }]),
    ),
    required: list.filter(({ required }) => required).map(({ name }) => name),
  });
  const content = (part) => {
    const kinds = Object.values(part?.content ?? {}).map(({ schema }) => schema);
    return kinds.length > 1 ? { oneOf: kinds } : kinds[0];
  };
  const query = object(named("query"));
  const body = content(requestBody);
  const input = object([
    ...named("path"),
    ...(named("query").length ? [{ name: "query", schema: query, required: query.required.length > 0 }] : []),
    ...(body ? [{ name: "body", schema: body, required: requestBody.required }] : []),
  ]);
  const answer = content(responses[Object.keys(responses).find((status) => status < "300")]);
  return object([
    { name: "input", schema: input, required: true },
    ...(answer ? [{ name: "answer", schema: answer, required: true }] : []),
  ]);
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
