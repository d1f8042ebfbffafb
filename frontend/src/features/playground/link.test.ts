// @vitest-environment node
import { describe, expect, it } from "vitest";
import { linkTo, readLink } from "./link";
import { DEFAULTS, type Sampling } from "./sampling";

const page = "https://lorikeet.example/t/acme/playground";
const made = async (change: Partial<Sampling>, models = ["support"]) =>
  linkTo(page, { models, sampling: { ...DEFAULTS, ...change } });
const read = async (link: string) => readLink(link.split("#")[1]!);

describe("a link to columns and settings", () => {
  it.each<[string, Partial<Sampling>, string[]]>([
    ["nothing but a model", {}, ["support"]],
    ["four columns", {}, ["a", "b@v2", "a+b:0.5", "🦜"]],
    [
      "every setting",
      {
        system: "مرحبا\n👩‍👩‍👧",
        temperature: 0,
        topP: 0.5,
        topK: 3,
        minP: 0.1,
        presencePenalty: -2,
        frequencyPenalty: 1,
        repetitionPenalty: 1.5,
        maxTokens: 1,
        seed: "42",
        cacheSalt: "house",
        format: "schema",
        schema: "{",
        tools: "[]",
      },
      ["support"],
    ],
    ["long settings", { system: "You answer in one sentence. ".repeat(200) }, ["support"]],
  ])("restores %s", async (_, change, models) => {
    const link = await made(change, models);
    expect(link).toMatch(/#[A-Za-z0-9_-]+$/);
    expect(await read(link)).toEqual({ models, sampling: { ...DEFAULTS, ...change } });
  });

  it("says plainly that it would be too long", async () => {
    const random = Array.from({ length: 20_000 }, (_, index) =>
      ((index * 2_654_435_761) % 4_294_967_296).toString(36),
    ).join("");
    await expect(made({ system: random })).rejects.toMatchObject({
      code: "playground_link_too_long",
      message: expect.stringMatching(/^The link would be [\d,]+ characters long, more than the 8,000/) as string,
    });
  });

  it("holds no API key", async () => {
    for (const key of [`lk_abcd2345_${"x".repeat(43)}`, `sk-${"y".repeat(40)}`])
      await expect(made({ system: `Use ${key}.` })).rejects.toMatchObject({ code: "playground_link_secret" });
    await expect(made({ system: "lk_ is how keys begin" })).resolves.toContain("#");
  });

  it("is refused where it is damaged", async () => {
    const whole = (await made({ system: "You answer in one sentence. ".repeat(20) })).split("#")[1]!;
    const bomb = `1${Buffer.from(await new Response(new Blob([new Uint8Array(1 << 22)]).stream().pipeThrough(new CompressionStream("deflate-raw"))).arrayBuffer()).toString("base64url")}`;
    const json = (value: unknown) => `0${Buffer.from(JSON.stringify(value)).toString("base64url")}`;
    for (const hash of [
      whole.slice(0, -9),
      `${whole.slice(0, 9)}!${whole.slice(10)}`,
      "0",
      "1",
      "main",
      "0e30",
      bomb,
      json(null),
      json([]),
      json({ models: [] }),
      json({ models: [1] }),
      json({ models: "a" }),
    ])
      await expect(readLink(hash), hash.slice(0, 20)).rejects.toMatchObject({ code: "playground_link_damaged" });
  });

  it("brings what it holds within what the API takes", async () => {
    const wild = {
      models: ["a", 5, "b", "c", "d", "e"],
      sampling: { temperature: 99, topK: 1.6, maxTokens: "many", seed: "1x2", format: "yaml", system: 7, other: 1 },
    };
    expect(await readLink(`0${Buffer.from(JSON.stringify(wild)).toString("base64url")}`)).toEqual({
      models: ["a", "b", "c", "d"],
      sampling: { ...DEFAULTS, temperature: 2, topK: 2, seed: "12" },
    });
  });
});
