import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { loaded, PartNotLoadedError } from "./lazy-part";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("a part that is fetched later", () => {
  it("is tried again", async () => {
    const load = vi.fn().mockRejectedValueOnce(new TypeError("Failed to fetch")).mockResolvedValue("part");
    const result = loaded(load);
    await vi.runAllTimersAsync();
    expect(await result).toBe("part");
    expect(load).toHaveBeenCalledTimes(2);
  });

  it("is given up after three tries", async () => {
    const load = vi.fn().mockRejectedValue(new TypeError("Failed to fetch"));
    const result = expect(loaded(load)).rejects.toThrow(PartNotLoadedError);
    await vi.runAllTimersAsync();
    await result;
    expect(load).toHaveBeenCalledTimes(3);
  });
});
