import { afterEach, describe, expect, it } from "vitest";
import { followSignOut, forgetEverywhere, keepHere, keptHere } from "./kept";

afterEach(() => localStorage.clear());

describe("what outlives a reload in a tab", () => {
  it("is gone after a sign-out, and nothing is added by what is still shown", () => {
    sessionStorage.setItem("another", "stays");
    keptHere("a");
    keepHere("a", "text");
    expect(keptHere("a")).toBe("text");
    forgetEverywhere();
    keepHere("a", "written on the way out");
    expect(sessionStorage.length).toBe(1);
    expect(keptHere("a")).toBeNull();
    keepHere("a", "of who signs in next");
    expect(keptHere("a")).toBe("of who signs in next");
  });

  it("is gone in the other tabs too", () => {
    followSignOut();
    keptHere("a");
    keepHere("a", "text");
    // What a browser says in each other tab of the write that a sign-out makes.
    dispatchEvent(new StorageEvent("storage", { key: "lorikeet.theme" }));
    expect(keptHere("a")).toBe("text");
    dispatchEvent(new StorageEvent("storage", { key: "lorikeet.signed-out" }));
    keepHere("a", "written on the way out");
    expect(keptHere("a")).toBeNull();
  });
});
