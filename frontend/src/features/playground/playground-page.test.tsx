import { act, cleanup, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it, vi } from "vitest";
import type { Model } from "@/api/types";
import { FakeSocket } from "../../../tests/fake-socket";
import { openConsole } from "../../../tests/render";
import { models, nobody } from "../../../tests/data";
import { server } from "../../../tests/server";
import { linkTo } from "./link";
import { DEFAULTS } from "./sampling";

const socket = () => FakeSocket.last;

async function ask(prompt: string, columns = 1) {
  const { user, client } = openConsole("/t/acme/playground?model=support");
  await screen.findByTestId("playground-input");
  for (let count = 1; count < columns; count++) await user.click(screen.getByTestId("playground-add"));
  await user.type(screen.getByTestId("playground-input"), `${prompt}{Enter}`);
  act(() => socket().accept());
  await waitFor(() => expect(socket().of("auth")).toEqual([{ type: "auth", ticket: "once" }]));
  act(() => socket().receive({ type: "hello", seq: 1, session: "s" }));
  const sent = socket().of("generate") as { id: string; request: Record<string, unknown> }[];
  return { user, client, sent };
}

const receive = (message: object) => act(() => socket().receive(message));
const timings = { queue_ms: 1, adapter_load_ms: 300, first_token_ms: 310, prefill_ms: 5, decode_ms: 100 };
const usage = { prompt_tokens: 4, completion_tokens: 11 };

describe("playground", () => {
  it("streams an answer and says how it was made", async () => {
    const { sent } = await ask("Hi there");
    expect(sent[0]!.request).toMatchObject({
      model: "support",
      messages: [{ role: "user", content: "Hi there" }],
      max_tokens: 256,
    });
    const { id } = sent[0]!;
    receive({ type: "delta", id, seq: 1, choice: 0, text: "Ahoy", tokens: 1 });
    const output = await screen.findByTestId("playground-output");
    await waitFor(() => expect(output).toHaveTextContent("Ahoy"));
    expect(output).toHaveAttribute("aria-busy", "true");
    receive({ type: "done", id, seq: 2, finish_reason: ["stop"], usage, timings });
    expect(await screen.findByText("100 tok/s")).toBeVisible();
    expect(screen.getByText("4 → 11 tokens")).toBeVisible();
    expect(screen.getByText(/cold, \+300 ms/)).toBeVisible();
    expect(output).toHaveAttribute("aria-busy", "false");
  });

  it("asks every column at once and keeps answers apart", async () => {
    const { sent } = await ask("Compare", 2);
    expect(sent.map(({ request }) => request.model)).toEqual(["support", "lorikeet-demo"]);
    receive({ type: "delta", id: sent[1]!.id, seq: 1, choice: 0, text: "I am the base", tokens: 4 });
    const base = screen.getByRole("region", { name: "Conversation with lorikeet-demo" });
    expect(await within(base).findByText("I am the base")).toBeVisible();
    expect(
      within(screen.getByRole("region", { name: "Conversation with support" })).queryByText("I am the base"),
    ).toBeNull();
  });

  it("shows reasoning folded up, and calls of tools", async () => {
    const { sent } = await ask("Weather?");
    const { id } = sent[0]!;
    receive({ type: "delta", id, seq: 1, choice: 0, text: "", reasoning: "The city is Oslo.", tokens: 4 });
    receive({
      type: "delta",
      id,
      seq: 2,
      choice: 0,
      text: "",
      tool_calls: [{ index: 0, id: "c", type: "function", function: { name: "get_weather", arguments: '{"city":' } }],
      tokens: 4,
    });
    receive({
      type: "delta",
      id,
      seq: 3,
      choice: 0,
      text: "",
      tool_calls: [{ index: 0, function: { arguments: ' "Oslo"}' } }],
      tokens: 4,
    });
    receive({ type: "done", id, seq: 4, finish_reason: ["tool_calls"], usage, timings });
    await waitFor(() =>
      expect(screen.getByTestId("tool-call")).toHaveTextContent('calls get_weather{ "city": "Oslo" }'),
    );
    expect(screen.getByText("The city is Oslo.")).not.toBeVisible();
    expect(screen.getByText("4 → 11 tokens")).toBeVisible();
  });

  it("sends what a called tool returned, in the column that called it", async () => {
    const { user, sent } = await ask("Weather?", 2);
    const { id } = sent[0]!;
    const call = { id: "c", type: "function", function: { name: "get_weather", arguments: '{"city": "Oslo"}' } };
    receive({ type: "delta", id, seq: 1, choice: 0, text: "", tool_calls: [{ index: 0, ...call }], tokens: 4 });
    receive({ type: "done", id, seq: 2, finish_reason: ["tool_calls"], usage, timings });
    receive({ type: "done", id: sent[1]!.id, seq: 1, finish_reason: ["stop"], usage, timings });
    const send = await screen.findByTestId("playground-results-send");
    expect(send).toBeDisabled();
    await user.type(screen.getByRole("textbox", { name: "Result of get_weather" }), "sunny");
    await user.click(send);
    const next = socket().of("generate").slice(2) as typeof sent;
    expect(next.map(({ request }) => request)).toMatchObject([
      {
        model: "support",
        messages: [
          { role: "user", content: "Weather?" },
          { role: "assistant", content: "", tool_calls: [call] },
          { role: "tool", content: "sunny", tool_call_id: "c" },
        ],
      },
    ]);
    expect(screen.getByTestId("tool-result")).toHaveTextContent("get_weather returnedsunny");
    expect(screen.queryByTestId("playground-result")).toBeNull();
  });

  it("begins with the conversation of a kept request", async () => {
    const kept = {
      prompt: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "Hi" },
        { role: "assistant", content: "Ho" },
        { role: "user", content: "And?" },
      ],
      answers: ["So."],
      settings: { temperature: 0.7, top_k: 5, stop: ["x"] },
      cut: false,
    };
    server.use(http.get("/api/tenants/acme/transcripts", () => HttpResponse.json([kept])));
    openConsole("/t/acme/playground?model=support&request=req_1");
    expect(await screen.findByTestId("playground-input")).toHaveValue("And?");
    expect(screen.getByText("Ho")).toBeVisible();
    expect(await screen.findByRole("textbox", { name: "System prompt" })).toHaveValue("Be brief.");
    expect(screen.getByRole("spinbutton", { name: "Temperature" })).toHaveValue(0.7);
    expect(screen.getByRole("spinbutton", { name: "Top-k" })).toHaveValue(5);
    expect(screen.getByTestId("playground-left")).toHaveTextContent(
      "That request also set stop, which the playground does not support.",
    );
  });

  it("sends a schema and tools, and the same as code", async () => {
    const { user } = openConsole("/t/acme/playground?model=support");
    await user.selectOptions(await screen.findByTestId("playground-format"), "schema");
    fireEvent.change(screen.getByTestId("playground-tools"), { target: { value: "[{" } });
    expect(
      screen.getByText("The tools are not a valid JSON array of functions. Correct or clear them under Sampling."),
    ).toBeVisible();
    expect(screen.getByTestId("playground-code")).toBeDisabled();
    await user.click(screen.getByRole("button", { name: "Clear tools" }));
    expect(
      screen.queryByText("The tools are not a valid JSON array of functions. Correct or clear them under Sampling."),
    ).toBeNull();
    fireEvent.change(screen.getByTestId("playground-tools"), { target: { value: '[{"name": "get_weather"}]' } });
    await user.click(screen.getByTestId("playground-code"));
    const code = await within(screen.getByRole("dialog")).findByRole("region", { name: "curl snippet" });
    expect(code).toHaveTextContent('"tools":[{"type":"function","function":{"name":"get_weather"}}]');
    expect(code).toHaveTextContent(
      '"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object"',
    );
  });

  it("stops when told to", async () => {
    const { user, sent } = await ask("Go on for ever");
    receive({ type: "delta", id: sent[0]!.id, seq: 1, choice: 0, text: "Well", tokens: 1 });
    await user.click(screen.getByTestId("playground-stop"));
    expect(socket().of("cancel")).toEqual([{ type: "cancel", id: sent[0]!.id }]);
    expect(await screen.findByText("stopped")).toBeVisible();
    expect(screen.getByTestId("playground-send")).toHaveFocus();
  });

  it("stops when the page is reloaded", async () => {
    const { sent } = await ask("Go on for ever");
    fireEvent(window, new Event("pagehide"));
    expect(socket().of("cancel")).toEqual([{ type: "cancel", id: sent[0]!.id }]);
  });

  it("shows an error with its fix in its column", async () => {
    const { sent } = await ask("Too long");
    receive({
      type: "error",
      id: sent[0]!.id,
      seq: 1,
      error: {
        code: "context_length_exceeded",
        message: "5000 tokens do not fit into 4096.",
        fix: "Shorten the conversation.",
        param: "messages",
      },
    });
    expect(await screen.findByText("Shorten the conversation.")).toBeVisible();
  });

  it.each([
    ["no model is ready", () => HttpResponse.json([])],
    ["the list cannot be read", () => HttpResponse.json({}, { status: 503 })],
  ])("keeps the conversation while %s", async (_, answer) => {
    const { client, sent } = await ask("Go on");
    server.use(http.get("/api/tenants/acme/models", answer));
    await act(() => client.refetchQueries({ queryKey: ["t", "acme", "models"] }));
    receive({ type: "delta", id: sent[0]!.id, seq: 1, choice: 0, text: "still here", tokens: 1 });
    expect(await screen.findByText("still here")).toBeVisible();
  });

  const done = (id: string, seq = 2) => receive({ type: "done", id, seq, finish_reason: ["stop"], usage, timings });
  const generated = () => socket().of("generate") as { id: string; request: { model: string; messages: object[] } }[];
  const answered = async (id: string, text: string) => {
    receive({ type: "accepted", id, request_id: `req_${id}`, model: "support" });
    receive({ type: "delta", id, seq: 1, choice: 0, text, tokens: 1 });
    done(id);
    expect(await screen.findByText(text)).toBeVisible();
  };

  it("keeps the branches that an edited message and another answer leave", async () => {
    const { user, sent } = await ask("First");
    await answered(sent[0]!.id, "one");
    await user.click(screen.getByRole("button", { name: "Regenerate the answer" }));
    expect(generated()[1]!.request.messages).toEqual([{ role: "user", content: "First" }]);
    await answered(generated()[1]!.id, "two");
    expect(screen.queryByText("one")).toBeNull();
    await user.click(screen.getByRole("button", { name: "Edit the message" }));
    const editor = screen.getByTestId("playground-edit");
    expect(editor).toHaveValue("First");
    await user.type(editor, "{Escape}");
    expect(screen.queryByTestId("playground-edit")).toBeNull();
    await user.click(screen.getByRole("button", { name: "Edit the message" }));
    await user.type(screen.getByTestId("playground-edit"), " of all{Enter}");
    expect(generated()[2]!.request.messages).toEqual([{ role: "user", content: "First of all" }]);
    await answered(generated()[2]!.id, "three");
    expect(screen.getByTestId("playground-branches")).toHaveTextContent("3 of 3");
    const back = screen.getByRole("button", { name: "Previous branch" });
    await user.click(back);
    expect(screen.getByText("two")).toBeVisible();
    await user.keyboard("{Enter}");
    expect(screen.getByText("one")).toBeVisible();
    expect(screen.getByRole("button", { name: "Previous branch" })).toHaveAttribute("aria-disabled", "true");
    await user.type(screen.getByTestId("playground-input"), "Next{Enter}");
    expect(generated()[3]!.request.messages).toEqual([
      { role: "user", content: "First" },
      { role: "assistant", content: "one" },
      { role: "user", content: "Next" },
    ]);
  });

  it("says what an answer cost, when the ledger does", async () => {
    const { sent } = await ask("Hi");
    await answered(sent[0]!.id, "Ho");
    expect(screen.queryByTestId("playground-cost")).toBeNull();
    receive({
      type: "event",
      seq: 2,
      event: "usage.tick",
      data: { id: `req_${sent[0]!.id}`, cost_micros: 420, currency: "USD" },
    });
    expect(await screen.findByTestId("playground-cost")).toHaveTextContent("$0.00042");
  });

  it("asks the ledger what an answer cost when nothing tells", async () => {
    const lookups: (string | null)[] = [];
    server.use(
      http.get("/api/tenants/acme/requests", ({ request }) => {
        lookups.push(new URL(request.url).searchParams.get("id"));
        return HttpResponse.json({
          next_cursor: null,
          results: [{ id: lookups[0], cost_micros: 1_500_000, currency: "USD" }],
        });
      }),
    );
    const { sent } = await ask("Hi");
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"], shouldAdvanceTime: true, advanceTimeDelta: 100 });
    try {
      await answered(sent[0]!.id, "Ho");
      await act(() => vi.advanceTimersByTimeAsync(6000));
      expect(await screen.findByTestId("playground-cost")).toHaveTextContent("$1.50");
    } finally {
      vi.useRealTimers();
    }
    expect(lookups).toEqual([`req_${sent[0]!.id}`]);
  });

  it("keeps the conversation while the page is left, and forgets it after a sign-out", async () => {
    const { user, sent } = await ask("Hi there");
    await answered(sent[0]!.id, "Ahoy");
    await user.type(screen.getByTestId("playground-input"), "half a thou");
    cleanup();
    const { user: again } = openConsole("/t/acme/playground");
    expect(await screen.findByText("Ahoy")).toBeVisible();
    expect(screen.getByTestId("playground-input")).toHaveValue("half a thou");
    server.use(http.delete("/api/session", () => HttpResponse.json(nobody)));
    await again.click(screen.getAllByRole("button", { name: "Sign out" })[0]!);
    expect(await screen.findByTestId("login-email")).toBeVisible();
    cleanup();
    openConsole("/t/acme/playground");
    expect(await screen.findByTestId("playground-input")).toHaveValue("");
    expect(screen.queryByText("Ahoy")).toBeNull();
  });

  it("keeps what had come of an answer, and puts an earlier conversation aside for a link", async () => {
    const { sent } = await ask("Hi there");
    receive({ type: "delta", id: sent[0]!.id, seq: 1, choice: 0, text: "Aho", tokens: 1 });
    expect(await screen.findByText("Aho")).toBeVisible();
    cleanup();
    const link = await linkTo("/t/acme/playground", {
      models: ["support@v2", "lorikeet-demo"],
      sampling: { ...DEFAULTS, topK: 7, system: "مرحبا 🦜" },
    });
    const { user } = openConsole(link);
    expect(await screen.findByRole("region", { name: "Conversation with support@v2" })).toBeVisible();
    expect(screen.getByRole("region", { name: "Conversation with lorikeet-demo" })).toBeVisible();
    expect(await screen.findByRole("textbox", { name: "System prompt" })).toHaveValue("مرحبا 🦜");
    expect(screen.getByRole("spinbutton", { name: "Top-k" })).toHaveValue(7);
    expect(screen.queryByText("Aho")).toBeNull();
    await user.click(within(screen.getByTestId("playground-earlier")).getByRole("button", { name: "Restore it" }));
    expect(await screen.findByText("Aho")).toBeVisible();
    expect(screen.getByText("stopped")).toBeVisible();
    expect(screen.queryByTestId("playground-earlier")).toBeNull();
  });

  it("says of a damaged link that it is one", async () => {
    openConsole("/t/acme/playground#1abcdef");
    expect(await screen.findByText("Request the link again, and copy all of it.")).toBeVisible();
    expect(screen.getByRole("link", { name: "Open the playground without it" })).toHaveAttribute(
      "href",
      "/t/acme/playground",
    );
  });

  it("offers versions and aliases of what can be called", async () => {
    const named = models.map((model) =>
      model.id === "support"
        ? { ...model, aliases: ["support@prod", "support@v3", "support@v2", "support@v1"] }
        : model,
    );
    server.use(http.get("/api/tenants/acme/models", () => HttpResponse.json(named)));
    const { user } = openConsole("/t/acme/playground");
    await user.click(await screen.findByTestId("playground-model"));
    const names = async () =>
      (await within(screen.getByRole("dialog")).findAllByRole("option"))
        .map((option) => option.dataset.model)
        .filter(Boolean);
    expect(await names()).toEqual([
      "lorikeet-demo",
      "support",
      "support@prod",
      "support@v3",
      "support@v2",
      "support@v1",
    ]);
    await user.keyboard("support@v");
    await waitFor(async () => expect(await names()).toEqual(["support@v3", "support@v2", "support@v1"]));
    await user.keyboard("2{Enter}");
    expect(screen.getByRole("region", { name: "Conversation with support@v2" })).toBeVisible();
  });

  describe("of several adapters as one", () => {
    const named: Model[] = [
      ...models,
      ...["legal", "tone", "other"].map((id): Model => ({
        ...models[1]!,
        id,
        adapter: id,
        base_model: id === "other" ? "qwen" : "llama",
        aliases: [`${id}@v2`],
      })),
    ];
    const serve = () =>
      server.use(
        http.get("/api/tenants/acme/models", ({ request }) =>
          HttpResponse.json(
            named.filter(({ id }) => id.includes(new URL(request.url).searchParams.get("search") ?? "")),
          ),
        ),
      );
    const begin = async (path = "/t/acme/playground?model=legal") => {
      serve();
      const { user } = openConsole(path);
      await user.click(await screen.findByTestId("playground-model"));
      await user.click(await screen.findByTestId("playground-combine"));
      const dialog = within(await screen.findByRole("dialog", { name: "Combine adapters" }));
      const choose = async (row: number, name: string) => {
        await user.click(dialog.getAllByTestId("combine-adapter")[row]!);
        fireEvent.change(await screen.findByPlaceholderText("Search, or type name@v2"), { target: { value: name } });
        // The server's answer came after what was typed: Enter takes the first of it.
        await waitFor(() => expect(screen.getAllByRole("option")[0]!.dataset.model).toBe(name));
        await user.keyboard("{Enter}");
      };
      return { user, dialog, choose };
    };

    it("builds the name, shows the request's code, and talks to it", async () => {
      const { user, dialog, choose } = await begin();
      expect(dialog.getByTestId("combine-problem")).toHaveTextContent("Choose an adapter in each row.");
      await choose(1, "tone");
      const weight = dialog.getByRole("spinbutton", { name: "Weight of tone" });
      await user.clear(weight);
      await user.type(weight, "-0.5");
      expect(await dialog.findByRole("region", { name: "curl snippet" })).toHaveTextContent(
        '"model":"legal+tone:-0.5"',
      );
      expect(dialog.getByRole("region", { name: "The model as a list" })).toHaveTextContent(
        '["legal",{"model":"tone","weight":-0.5}]',
      );
      await user.click(dialog.getByRole("button", { name: "Use in this column" }));
      expect(screen.getByRole("region", { name: "Conversation with legal+tone:-0.5" })).toBeVisible();
      await waitFor(() => expect(screen.getByTestId("playground-model")).toHaveFocus());
    });

    it("begins with the one that the column has, and takes parts away", async () => {
      const { user, dialog } = await begin("/t/acme/playground?model=legal%40v2:0.25%2Btone%2Bsupport:3");
      expect(dialog.getAllByTestId("combine-adapter").map(({ textContent }) => textContent)).toEqual([
        "legal@v2",
        "tone",
        "support",
      ]);
      expect(dialog.getAllByRole("spinbutton").map((input) => (input as HTMLInputElement).value)).toEqual([
        "0.25",
        "1",
        "3",
      ]);
      await user.click(dialog.getByRole("button", { name: "Remove tone" }));
      await user.click(dialog.getByRole("button", { name: "Use in this column" }));
      expect(screen.getByRole("region", { name: "Conversation with legal@v2:0.25+support:3" })).toBeVisible();
    });

    it("says what cannot be combined", async () => {
      const { user, dialog, choose } = await begin();
      await choose(1, "legal");
      const problem = dialog.getByTestId("combine-problem");
      expect(problem).toHaveTextContent("“legal” is listed twice. List each adapter once.");
      await choose(1, "other");
      expect(problem).toHaveTextContent(
        "The adapters belong to different base models: “legal” of llama, “other” of qwen. Choose adapters of one base model.",
      );
      await choose(1, "tone@v2");
      expect(problem).toBeEmptyDOMElement();
      const weight = dialog.getByRole("spinbutton", { name: "Weight of tone@v2" });
      for (const [typed, message] of [
        ["0", /Not 0/],
        ["10.5", /between -10 and 10/],
        ["0.12345", /four decimal places/],
      ] as const) {
        fireEvent.change(weight, { target: { value: typed } });
        expect(weight).toHaveAccessibleDescription(message);
        expect(dialog.getByRole("button", { name: "Use in this column" })).toBeDisabled();
      }
      await user.click(dialog.getByRole("button", { name: "Add an adapter" }));
      await user.click(dialog.getByRole("button", { name: "Add an adapter" }));
      expect(dialog.getByRole("button", { name: "Add an adapter" })).toBeDisabled();
      await user.keyboard("{Escape}");
      expect(screen.getByRole("region", { name: "Conversation with legal" })).toBeVisible();
    });
  });

  it("sends penalties within their bounds, and takes them back", async () => {
    const { user } = openConsole("/t/acme/playground?model=support");
    await user.click(await screen.findByText("Penalties and cut-offs"));
    const type = async (name: string, text: string) => {
      const box = screen.getByRole("spinbutton", { name });
      await user.clear(box);
      await user.type(box, text);
      await user.tab();
    };
    await type("Presence penalty", "9");
    await type("Repetition penalty", "1.15");
    await type("Top-k", "40.4");
    expect(screen.getByRole("spinbutton", { name: "Presence penalty" })).toHaveValue(2);
    await user.click(screen.getByTestId("playground-code"));
    const code = await within(screen.getByRole("dialog")).findByRole("region", { name: "curl snippet" });
    expect(code).toHaveTextContent('"max_tokens":256,"top_k":40,"presence_penalty":2,"repetition_penalty":1.15');
    await user.keyboard("{Escape}");
    await user.click(screen.getByRole("button", { name: "Reset Presence penalty" }));
    expect(screen.getByRole("spinbutton", { name: "Presence penalty" })).toHaveValue(0);
    expect(screen.queryByRole("button", { name: "Reset Presence penalty" })).toBeNull();
  });

  it("shows how an answer was asked for, whatever was changed since", async () => {
    const { user, sent } = await ask("First");
    await answered(sent[0]!.id, "one");
    fireEvent.change(screen.getByRole("spinbutton", { name: "Max tokens" }), { target: { value: "7" } });
    await user.click(screen.getByRole("button", { name: "The request as code" }));
    const code = await screen.findByRole("region", { name: "curl snippet" });
    expect(code).toHaveTextContent(JSON.stringify({ ...sent[0]!.request, stream: true }));
  });

  it("marks the words in which two answers differ", async () => {
    const { user, sent } = await ask("Capital?", 2);
    await answered(sent[0]!.id, "It is Paris.");
    expect(screen.getByTestId("playground-diff")).toBeDisabled();
    await answered(sent[1]!.id, "It is Lyon.");
    await user.click(screen.getByTestId("playground-diff"));
    expect(await screen.findByText("1 word removed, 1 word added, 2 the same.")).toBeVisible();
    const shown = screen.getByTestId("playground-differences");
    expect(shown).toHaveTextContent("It is ParisLyon.");
    expect(shown.querySelector("del")).toHaveTextContent("Paris");
    expect(shown.querySelector("ins")).toHaveTextContent("Lyon");
  });
});
