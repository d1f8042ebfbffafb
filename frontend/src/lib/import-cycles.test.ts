// @vitest-environment node
import { dirname, join } from "node:path/posix";
import { expect, it } from "vitest";

const SOURCES = import.meta.glob<string>(["/src/**/*.{ts,tsx}", "!/src/**/*.test.*", "!/src/api/schema.d.ts"], {
  query: "?raw",
  import: "default",
  eager: true,
});

/** The files of the console that a file imports: types and parts loaded on demand too. */
function importsOf(file: string): string[] {
  const paths = [...SOURCES[file]!.matchAll(/(?:from|import\()\s*"(@\/|\.{1,2}\/)([^"]+)"/g)].map(([, start, rest]) =>
    start === "@/" ? `/src/${rest}` : join(dirname(file), start!, rest!),
  );
  return paths.flatMap((path) => [`${path}.ts`, `${path}.tsx`].filter((name) => name in SOURCES));
}

it("has no circle of imports", () => {
  const done = new Set<string>();
  const visit = (file: string, path: string[]): string[] | null => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return null;
    for (const next of importsOf(file)) {
      const circle = visit(next, [...path, file]);
      if (circle) return circle;
    }
    done.add(file);
    return null;
  };
  expect(Object.keys(SOURCES).length).toBeGreaterThan(100);
  expect(
    Object.keys(SOURCES)
      .map((file) => visit(file, []))
      .find(Boolean),
  ).toBeUndefined();
});
