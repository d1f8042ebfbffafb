import { queryOptions } from "@tanstack/react-query";
import { Link, useLocation, useSearch } from "@tanstack/react-router";
import { MessagesSquare, X } from "lucide-react";
import { Suspense, useRef, useState } from "react";
import { type ApiError, asApiError } from "@/api/errors";
import type { Model } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { modelsQuery } from "@/features/adapters/queries";
import { transcriptQuery } from "@/features/requests/transcript-query";
import { useCan, useSession, useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { lazyPart, loaded } from "@/lib/lazy-part";
import type { SnippetInput } from "@/lib/snippets";
import { useTitle } from "@/lib/use-title";
import { ColumnView } from "./column";
import { Composer, focusOnDesktop } from "./composer";
import {
  type Answer,
  type Column,
  isRunning,
  messagesFor,
  type Playground as PlaygroundState,
  shownTurns,
  startColumns,
  type Turn,
  turnsUpTo,
} from "./conversation";
import { EXAMPLES } from "./examples";
import { type Board, type StoredBoards, storedBoards } from "./stored-boards";
import type { Setup } from "./link";
import { type Replay, replayOf, startWith } from "./replay";
import { DEFAULTS, problemOf, requestBody, type Sampling } from "./sampling";
import { CodeDialog, Toolbar } from "./toolbar";
import { useCosts } from "./use-costs";
import { useStoredBoards } from "./use-stored-boards";
import { usePlayground } from "./use-playground";

const SamplingPanel = lazyPart(() => import("./sampling-panel"), "SamplingPanel");

/** Returns the setup in the fragment of the address, or null. */
const setupQuery = (hash: string) =>
  queryOptions({
    queryKey: ["playground-link", hash],
    queryFn: async () => (hash ? (await loaded(() => import("./link"))).readLink(hash) : null),
    retry: false,
    staleTime: Infinity,
    gcTime: 0,
  });

export function PlaygroundPage() {
  useTitle("Playground");
  const tenant = useTenant();
  const { model, request } = useSearch({ from: "/t/$tenant/playground" });
  const hash = useLocation({ select: ({ hash }) => hash });
  return (
    <Playground
      key={`${tenant} ${model} ${request} ${hash}`}
      tenant={tenant}
      model={model}
      request={request}
      hash={hash}
    />
  );
}

interface PlaygroundParams {
  tenant: string;
  model: string | undefined;
  request: string | undefined;
  /** Columns and settings of a link; empty if there is none. */
  hash: string;
}

function Playground({ tenant, model, request, hash }: PlaygroundParams) {
  const { data, error, refetch } = useQuery(modelsQuery(tenant));
  const kept = useQuery({ ...transcriptQuery(tenant, request ?? ""), enabled: request !== undefined });
  const setup = useQuery(setupQuery(hash));
  const may = useCan("infer");
  // The last known models stay while a host restarts, so that the conversation stays.
  const [models, setModels] = useState<Model[]>();
  if (data?.length && data !== models) setModels(data);
  if (may && kept.error)
    return <PlaygroundLayout>{<ErrorNotice error={kept.error} onRetry={kept.refetch} />}</PlaygroundLayout>;
  if (may && setup.error)
    return <PlaygroundLayout>{<DamagedLink tenant={tenant} error={asApiError(setup.error)} />}</PlaygroundLayout>;
  if (may && models && !kept.isLoading && !setup.isLoading) {
    const replay = kept.data ? replayOf(kept.data) : null;
    const origin = [model, request, hash].join(" ").trim();
    return (
      <Boards
        tenant={tenant}
        models={models}
        fresh={() => freshBoard(origin, firstModel(models, model), replay, setup.data ?? null)}
      />
    );
  }
  if (error) return <PlaygroundLayout>{<ErrorNotice error={error} onRetry={refetch} />}</PlaygroundLayout>;
  if (!data) return <PlaygroundLayout>{<Skeleton className="h-full w-full" />}</PlaygroundLayout>;
  if (!may) return <PlaygroundLayout>{<NotAllowed />}</PlaygroundLayout>;
  return <PlaygroundLayout>{<NoModels />}</PlaygroundLayout>;
}

function PlaygroundLayout({ children }: { children: React.ReactNode }) {
  return (
    <div className="flex h-[calc(100dvh-3.25rem)] flex-col gap-3 p-3 sm:p-5 md:h-dvh">
      <h1 className="text-xl font-semibold tracking-tight">Playground</h1>
      {children}
    </div>
  );
}

function NotAllowed() {
  return (
    <Empty icon={<MessagesSquare />} title="Your role does not allow inference">
      Ask an owner or admin of this tenant for the developer role.
    </Empty>
  );
}

function DamagedLink({ tenant, error }: { tenant: string; error: ApiError }) {
  return (
    <>
      <ErrorNotice error={error} />
      <Button asChild className="justify-self-start self-start">
        <Link to="/t/$tenant/playground" params={{ tenant }}>
          Open the playground without it
        </Link>
      </Button>
    </>
  );
}

function NoModels() {
  return (
    <Empty icon={<MessagesSquare />} title="No model is being served" command="make run">
      No engine host is connected. Start one, and this page updates automatically.
    </Empty>
  );
}

/** Returns the model of the address, or the first adapter, or the base model. */
function firstModel(models: Model[], requested: string | undefined): string {
  return requested ?? models.find(({ kind }) => kind === "adapter")?.id ?? models[0]?.id ?? "";
}

/** Returns a model for a new column that is not shown yet, if there is one. */
function nextModel(models: Model[], shown: string[]): string {
  return models.find(({ id }) => !shown.includes(id))?.id ?? models[0]?.id ?? "";
}

function freshBoard(origin: string, model: string, replay: Replay | null, setup: Setup | null): Board {
  if (setup) return { origin, state: startColumns(setup.models), sampling: setup.sampling, draft: "", left: [] };
  return {
    origin,
    state: startWith(model, replay),
    sampling: replay?.sampling ?? DEFAULTS,
    draft: replay?.prompt ?? "",
    left: replay?.left ?? [],
  };
}

/** Returns the stored board, or a new one if the address asks for another; the stored one then remains available. */
function boardsToBegin(kept: StoredBoards | null, fresh: Board): StoredBoards {
  if (!kept) return { board: fresh, earlier: null };
  if (fresh.origin === "" || kept.board.origin === fresh.origin) return kept;
  if (kept.earlier?.origin === fresh.origin) return swapped(kept);
  return { board: fresh, earlier: kept.board.state.turns.length > 0 ? kept.board : kept.earlier };
}

const swapped = ({ board, earlier }: StoredBoards): StoredBoards =>
  earlier ? { board: earlier, earlier: board.state.turns.length > 0 ? board : null } : { board, earlier };

interface BoardsProps {
  tenant: string;
  models: Model[];
  fresh: () => Board;
}

function Boards({ tenant, models, fresh }: BoardsProps) {
  const user = useSession().user?.id ?? "";
  const [{ boards, count }, setBoards] = useState(() => ({
    boards: boardsToBegin(storedBoards(user, tenant), fresh()),
    count: 0,
  }));
  // The stored board replaces the one that the address began, as long as that address is open.
  const swap = ({ board, earlier }: StoredBoards) =>
    earlier &&
    setBoards({
      boards: swapped({ board: { ...board, origin: "" }, earlier: { ...earlier, origin: board.origin } }),
      count: count + 1,
    });
  return <BoardView key={count} user={user} tenant={tenant} models={models} begun={boards} onSwap={swap} />;
}

interface BoardProps {
  user: string;
  tenant: string;
  models: Model[];
  begun: StoredBoards;
  onSwap: (boards: StoredBoards) => void;
}

function BoardView({ user, tenant, models, begun, onSwap }: BoardProps) {
  const { state, dispatch, ask, sendResults, edit, regenerate, stop, remove } = usePlayground(begun.board.state);
  const [sampling, setSampling] = useState(begun.board.sampling);
  const [earlier, setEarlier] = useState(begun.earlier);
  const [left, setLeft] = useState(begun.board.left);
  const [panel, setPanel] = useState(begun.board.state.columns.length < 3);
  const [code, setCode] = useState<SnippetInput["body"]>();
  const draft = useRef(begun.board.draft);
  const input = useRef<HTMLTextAreaElement>(null);
  const board: Board = { origin: begun.board.origin, state, sampling, draft: "", left };
  useStoredBoards(user, tenant, { board, earlier }, draft);
  useCosts(tenant, state, dispatch);

  const turns = shownTurns(state);
  const names = state.columns.map(({ model }) => model);
  const change = (part: Partial<Sampling>) => setSampling((old) => ({ ...old, ...part }));
  const add = () => {
    dispatch({ type: "add-column", model: nextModel(models, names) });
    // Three columns and the panel do not fit beside each other on most screens.
    if (state.columns.length >= 2) setPanel(false);
  };
  const problem = problemOf(sampling);
  const running = state.turns.some(({ answers }) => Object.values(answers).some(isRunning));
  const ready = !running && problem === null;
  // The pressed button disappears while the answer arrives, so the focus moves to the button that stops it.
  const then = () => focusOnDesktop(input);
  return (
    <div className="flex h-[calc(100dvh-3.25rem)] min-h-0 md:h-dvh">
      <div className="flex min-w-0 flex-1 flex-col gap-3 p-3 sm:p-5">
        <Toolbar
          state={state}
          turns={turns}
          running={running}
          sampling={sampling}
          onSampling={change}
          onCode={problem ? null : () => setCode(nextRequest(state, turns, sampling))}
          panel={panel}
          onPanel={() => setPanel(!panel)}
          onAdd={add}
          onClear={() => dispatch({ type: "clear" })}
        />
        {earlier && (
          <Notice onDismiss={() => setEarlier(null)} name="earlier" text="Your earlier conversation is kept.">
            <Button
              size="sm"
              disabled={running}
              onClick={() => onSwap({ board: { ...board, draft: draft.current }, earlier })}
            >
              Restore it
            </Button>
          </Notice>
        )}
        {left.length > 0 && (
          <Notice
            onDismiss={() => setLeft([])}
            name="left"
            text={`That request also set ${left.join(", ")}, which the playground does not support.`}
          />
        )}
        {/* Positioned, so that what is there for screen readers only scrolls with its column. */}
        <div
          className={cn(
            "relative scroll-quiet grid min-h-0 flex-1 snap-x gap-3 overflow-x-auto",
            "auto-cols-[minmax(min(100%,17rem),1fr)] grid-flow-col grid-rows-[minmax(0,1fr)]",
          )}
        >
          {state.columns.map((column) => (
            <ColumnView
              key={column.id}
              column={column}
              turns={turns}
              all={state.turns}
              models={models}
              onChoose={(model) => dispatch({ type: "choose", column: column.id, model })}
              onRemove={state.columns.length > 1 ? () => remove(column.id) : null}
              actions={{
                send: ready
                  ? {
                      results: (results) => sendResults(column, results, sampling),
                      edit: (turn, prompt) => {
                        edit(turn, prompt, sampling);
                        then();
                      },
                      regenerate: (turn) => {
                        regenerate(turn, column, sampling);
                        then();
                      },
                    }
                  : null,
                show: (turn) => dispatch({ type: "show", turn }),
                code: (turn, answer) => setCode(requestOf(state, turn, column, answer)),
              }}
              empty={
                <Welcome
                  model={column.model}
                  several={state.columns.length > 1}
                  onExample={(prompt) => ask(prompt, sampling)}
                  disabled={!ready}
                />
              }
            />
          ))}
        </div>
        <Composer
          area={input}
          initial={begun.board.draft}
          onDraft={(text) => (draft.current = text)}
          running={running}
          columns={state.columns.length}
          problem={problem}
          onSend={(prompt) => ask(prompt, sampling)}
          onStop={stop}
        />
      </div>
      {panel && (
        <aside
          aria-label="Sampling"
          className="scroll-quiet hidden w-72 shrink-0 overflow-y-auto border-l bg-surface p-5 xl:block"
        >
          <h2 className="mb-4 text-sm font-semibold">Sampling</h2>
          <Suspense fallback={<Skeleton className="h-96 w-full" />}>
            <SamplingPanel sampling={sampling} onChange={change} />
          </Suspense>
        </aside>
      )}
      <CodeDialog body={code} onClose={() => setCode(undefined)} />
    </div>
  );
}

/** Returns the request behind an answer. */
const requestOf = ({ turns }: PlaygroundState, turn: Turn, column: Column, { model, sampling }: Answer) =>
  requestBody(model, messagesFor(turnsUpTo(turns, turn.parent), column.id, sampling.system, turn), sampling);

/** Returns the request that would answer the last message again in the first column. */
function nextRequest({ turns, columns }: PlaygroundState, shown: Turn[], sampling: Sampling) {
  const [first] = columns;
  const last = shown.findLast(({ answers }) => first && answers[first.id]);
  const question = last ?? { prompt: EXAMPLES[0]!, results: [] };
  return requestBody(
    first?.model ?? "",
    messagesFor(last ? turnsUpTo(turns, last.parent) : [], first?.id ?? 0, sampling.system, question),
    sampling,
  );
}

interface NoticeProps {
  name: string;
  text: string;
  onDismiss: () => void;
  children?: React.ReactNode;
}

function Notice({ name, text, onDismiss, children }: NoticeProps) {
  return (
    <div
      className="flex flex-wrap items-center gap-2 rounded-lg border bg-surface py-1.5 pr-1.5 pl-3 text-sm text-ink-2"
      data-testid={`playground-${name}`}
    >
      <span className="mr-auto min-w-0 break-words">{text}</span>
      {children}
      <Button size="icon" variant="ghost" aria-label="Dismiss" title="Dismiss" className="size-7!" onClick={onDismiss}>
        <X />
      </Button>
    </div>
  );
}

interface WelcomeProps {
  model: string;
  /** Other columns get the same messages. */
  several: boolean;
  disabled: boolean;
  onExample: (prompt: string) => void;
}

function Welcome({ model, several, disabled, onExample }: WelcomeProps) {
  return (
    <div className="m-auto w-full max-w-sm py-6 text-center">
      <p className="text-base font-medium">Chat with {model}</p>
      {several && <p className="mt-0.5 text-sm text-ink-3">Every column gets the same message.</p>}
      <div className="mt-4 grid gap-2">
        {EXAMPLES.map((prompt) => (
          <button
            key={prompt}
            type="button"
            disabled={disabled}
            onClick={() => onExample(prompt)}
            className="rounded-lg border bg-surface px-3.5 py-2 text-left text-sm text-ink-2 transition-colors hover:border-line-2 hover:bg-fill hover:text-ink"
          >
            {prompt}
          </button>
        ))}
      </div>
    </div>
  );
}
