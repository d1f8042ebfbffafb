import { afterEach, describe, expect, it } from "vitest";
import { followSignOut, forgetEverywhere, storeText, readText } from "./tab-storage";

afterEach(() => localStorage.clear());

describe("what outlives a reload in a tab", () => {
  it("is gone after a sign-out, and nothing is added by what is still shown", () => {
    sessionStorage.setItem("another", "stays");
    readText("a");
    storeText("a", "text");
    expect(readText("a")).toBe("text");
    forgetEverywhere();
    storeText("a", "written on the way out");
    expect(sessionStorage.length).toBe(1);
    expect(readText("a")).toBeNull();
    storeText("a", "of who signs in next");
    expect(readText("a")).toBe("of who signs in next");
  });

  it("is gone in the other tabs too", () => {
    followSignOut();
    readText("a");
    storeText("a", "text");
    // What a browser says in each other tab of the write that a sign-out makes.
    dispatchEvent(new StorageEvent("storage", { key: "lorikeet.theme" }));
    expect(readText("a")).toBe("text");
    dispatchEvent(new StorageEvent("storage", { key: "lorikeet.signed-out" }));
    storeText("a", "written on the way out");
    expect(readText("a")).toBeNull();
  });
});
