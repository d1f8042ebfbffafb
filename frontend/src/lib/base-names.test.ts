import { describe, expect, it } from "vitest";
import { namesAnotherBase } from "./base-names";

describe("namesAnotherBase", () => {
  it.each([
    "fake-base",
    "org/Fake-Base",
    "/models/fake-base/",
    "unsloth/fake-base-unsloth-bnb-4bit",
    "D:\\models\\Fake-Base\\",
    "c:/models/fake-base",
    "\\\\server\\share\\fake-base-4bit",
    "D:\\out\\checkpoint-500",
    "./out/checkpoint-500",
    "C:\\out/merged\\model",
    "D:\\",
    "..",
  ])("takes %s for the served model, or for no name", (named) => {
    expect(namesAnotherBase(named, "fake-base")).toBe(false);
  });

  it.each(["org/another", "D:\\out\\merged", "\\\\server\\share\\llama"])("takes %s for another", (named) => {
    expect(namesAnotherBase(named, "fake-base")).toBe(true);
  });
});
