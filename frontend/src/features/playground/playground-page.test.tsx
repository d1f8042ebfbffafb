import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { FakeSocket } from "../../../tests/fake-socket";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const socket = () => FakeSocket.last;

async function ask(prompt: string, columns = 1) {
  const { user, client } = openConsole("/t/acme/playground?model=support");
  await screen.findByTestId("playground-input");
  for (let count = 1; count < columns; count++) await user.click(screen.getByTestId("playground-add"));
  await user.type(screen.getByTestId("playground-input"), `${prompt}{Enter}`);
  act(() => socket().accept());
  await waitFor(() => expect(socket().of("auth")).toEqual([{ type: "auth", ticket: "once" }]));
  act(() => socket().say({ type: "hello", seq: 1, session: "s" }));
  const sent = socket().of("generate") as { id: string; request: Record<string, unknown> }[];
  return { user, client, sent };
}

const say = (message: object) => act(() => socket().say(message));
const timings = { queue_ms: 1, adapter_load_ms: 300, first_token_ms: 310, prefill_ms: 5, decode_ms: 100 };
const usage = { prompt_tokens: 4, completion_tokens: 11 };

describe("playground", () => {
  it("streams an answer and says how it was made", async () => {
    const { sent } = await ask("Hi there");
    expect(sent[0]!.request).toMatchObject({ model: "support", messages: [{ role: "user", content: "Hi there" }], max_tokens: 256 });
    const { id } = sent[0]!;
    say({ type: "delta", id, seq: 1, choice: 0, text: "Ahoy", tokens: 1 });
    const output = await screen.findByTestId("playground-output");
    await waitFor(() => expect(output).toHaveTextContent("Ahoy"));
    expect(output).toHaveAttribute("aria-busy", "true");
    say({ type: "done", id, seq: 2, finish_reason: ["stop"], usage, timings });
    expect(await screen.findByText("100 tok/s")).toBeVisible();
    expect(screen.getByText("4 → 11 tokens")).toBeVisible();
    expect(screen.getByText(/cold, \+300 ms/)).toBeVisible();
    expect(output).toHaveAttribute("aria-busy", "false");
  });

  it("asks every column at once and keeps answers apart", async () => {
    const { sent } = await ask("Compare", 2);
    expect(sent.map(({ request }) => request.model)).toEqual(["support", "lorikeet-demo"]);
    say({ type: "delta", id: sent[1]!.id, seq: 1, choice: 0, text: "I am the base", tokens: 4 });
    const base = screen.getByRole("region", { name: "Conversation with lorikeet-demo" });
    expect(await within(base).findByText("I am the base")).toBeVisible();
    expect(within(screen.getByRole("region", { name: "Conversation with support" })).queryByText("I am the base")).toBeNull();
  });

  it("shows reasoning folded up, and calls of tools", async () => {
    const { sent } = await ask("Weather?");
    const { id } = sent[0]!;
    say({ type: "delta", id, seq: 1, choice: 0, text: "", reasoning: "The city is Oslo.", tokens: 4 });
    say({ type: "delta", id, seq: 2, choice: 0, text: "", tool_calls: [{ index: 0, id: "c", type: "function", function: { name: "get_weather", arguments: '{"city":' } }], tokens: 4 });
    say({ type: "delta", id, seq: 3, choice: 0, text: "", tool_calls: [{ index: 0, function: { arguments: ' "Oslo"}' } }], tokens: 4 });
    say({ type: "done", id, seq: 4, finish_reason: ["tool_calls"], usage, timings });
    await waitFor(() => expect(screen.getByTestId("tool-call")).toHaveTextContent('calls get_weather{ "city": "Oslo" }'));
    expect(screen.getByText("The city is Oslo.")).not.toBeVisible();
    expect(screen.getByText("4 → 11 tokens")).toBeVisible();
  });

  it("sends what a called tool returned, in the column that called it", async () => {
    const { user, sent } = await ask("Weather?", 2);
    const { id } = sent[0]!;
    const call = { id: "c", type: "function", function: { name: "get_weather", arguments: '{"city": "Oslo"}' } };
    say({ type: "delta", id, seq: 1, choice: 0, text: "", tool_calls: [{ index: 0, ...call }], tokens: 4 });
    say({ type: "done", id, seq: 2, finish_reason: ["tool_calls"], usage, timings });
    say({ type: "done", id: sent[1]!.id, seq: 1, finish_reason: ["stop"], usage, timings });
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
    const kept = { prompt: [{ role: "system", content: "Be brief." }, { role: "user", content: "Hi" }, { role: "assistant", content: "Ho" }, { role: "user", content: "And?" }], answers: ["So."], cut: false };
    server.use(http.get("/api/tenants/acme/requests/req_1/transcript", () => HttpResponse.json(kept)));
    openConsole("/t/acme/playground?model=support&request=req_1");
    expect(await screen.findByTestId("playground-input")).toHaveValue("And?");
    expect(screen.getByText("Ho")).toBeVisible();
    expect(screen.getByRole("textbox", { name: "System prompt" })).toHaveValue("Be brief.");
  });

  it("sends a schema and tools, and the same as code", async () => {
    const { user } = openConsole("/t/acme/playground?model=support");
    await user.selectOptions(await screen.findByTestId("playground-format"), "schema");
    fireEvent.change(screen.getByTestId("playground-tools"), { target: { value: "[{" } });
    expect(screen.getByText("The tools are no JSON array of functions yet.")).toBeVisible();
    expect(screen.getByTestId("playground-code")).toBeDisabled();
    fireEvent.change(screen.getByTestId("playground-tools"), { target: { value: '[{"name": "get_weather"}]' } });
    await user.click(screen.getByTestId("playground-code"));
    const code = await within(screen.getByRole("dialog")).findByRole("region", { name: "curl snippet" });
    expect(code).toHaveTextContent('"tools":[{"type":"function","function":{"name":"get_weather"}}]');
    expect(code).toHaveTextContent('"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object"');
  });

  it("stops when told to", async () => {
    const { user, sent } = await ask("Go on for ever");
    say({ type: "delta", id: sent[0]!.id, seq: 1, choice: 0, text: "Well", tokens: 1 });
    await user.click(screen.getByTestId("playground-stop"));
    expect(socket().of("cancel")).toEqual([{ type: "cancel", id: sent[0]!.id }]);
    expect(await screen.findByText("stopped")).toBeVisible();
    expect(screen.getByTestId("playground-send")).toBeVisible();
  });

  it("shows an error with its fix in its column", async () => {
    const { sent } = await ask("Too long");
    say({
      type: "error",
      id: sent[0]!.id,
      seq: 1,
      error: { code: "context_length_exceeded", message: "5000 tokens do not fit into 4096.", fix: "Shorten the conversation.", param: "messages" },
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
    say({ type: "delta", id: sent[0]!.id, seq: 1, choice: 0, text: "still here", tokens: 1 });
    expect(await screen.findByText("still here")).toBeVisible();
  });
});
