// @vitest-environment node
import { describe, expect, it } from "vitest";
import { LANGUAGES, snippet } from "./snippets";

describe("snippet", () => {
  const input = { model: "support@v2", origin: "https://lorikeet.example" };

  it.each(LANGUAGES.map(({ id }) => id))("in %s names the model and reads the key from the environment", (language) => {
    const code = snippet(language, input);
    expect(code).toContain("support@v2");
    expect(code).toContain("LORIKEET_API_KEY");
    expect(snippet(language, { ...input, secret: "lk_a_b" })).toContain("lk_a_b");
    expect(snippet(language, { ...input, secret: "lk_a_b" })).not.toContain("LORIKEET_API_KEY");
  });

  it("writes a whole request as each language does", () => {
    const body = {
      model: "support",
      messages: [],
      strict: true,
      stop: null,
      tools: [
        {
          type: "function",
          function: { name: "f", parameters: { type: "object", required: ['a "quoted" name', "another"] } },
        },
      ],
    };
    expect(snippet("python", { origin: input.origin, body })).toContain(`    strict=True,
    stop=None,
    tools=[
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {"type": "object", "required": ["a \\"quoted\\" name", "another"]},
            },
        },
    ],
    stream=True,`);
    expect(snippet("typescript", { origin: input.origin, body })).toContain("  messages: [],\n  strict: true,");
    for (const id of ["python", "typescript", "websocket"] as const)
      expect(snippet(id, { origin: input.origin, body })).toContain("tool_calls");
  });

  it("hands what OpenAI's libraries do not know past their types", () => {
    const body = { model: "support", messages: [], presence_penalty: 0.5, top_k: 5, repetition_penalty: 1.1 };
    const extended = { origin: input.origin, body };
    expect(snippet("python", extended)).toContain(
      '    presence_penalty=0.5,\n    extra_body={"top_k": 5, "repetition_penalty": 1.1},\n',
    );
    expect(snippet("typescript", extended)).toContain(
      "  presence_penalty: 0.5,\n  ...({ top_k: 5, repetition_penalty: 1.1 } as object),\n",
    );
    expect(snippet("curl", extended)).toContain(
      '"presence_penalty":0.5,"top_k":5,"repetition_penalty":1.1,"stream":true',
    );
  });

  it("survives quotes in a shell", () => {
    expect(snippet("curl", { ...input, prompt: "What's up?" })).toContain("What'\\''s up?");
  });

  it("speaks wss to https", () => expect(snippet("websocket", input)).toContain("wss://lorikeet.example/ws/inference"));
});
