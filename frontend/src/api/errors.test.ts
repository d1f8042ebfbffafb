import { expect, test } from "vitest";

import { errorFrom } from "./errors";

const fixOf = (fix: string) => errorFrom({ error: { code: "c", message: "m", fix } }, 400).fix;

test("advice for programs is left out of what a page shows", () => {
  expect(fixOf("GET keys lists them.")).toBe("");
  expect(fixOf("Choose another name. GET /api/operator/hosts lists them.")).toBe("Choose another name.");
  expect(fixOf("GET uploads/3f shows its result. Try again.")).toBe("Try again.");
  expect(fixOf("Use another key.")).toBe("Use another key.");
});
