import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { Code, Columns2, MessagesSquare, SlidersHorizontal, Trash2 } from "lucide-react";
import { Suspense, useState } from "react";
import { asApiError } from "@/api/errors";
import type { Model } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { modelsQuery } from "@/features/adapters/queries";
import { transcriptQuery } from "@/features/requests/transcript-query";
import { useCan, useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { lazyPart } from "@/lib/lazy-part";
import type { SnippetInput } from "@/lib/snippets";
import { useTitle } from "@/lib/use-title";
import { ColumnView } from "./column";
import { Composer } from "./composer";
import { isRunning, messagesFor, MOST_COLUMNS, type Turn } from "./conversation";
import { EXAMPLES } from "./examples";
import { type Replay, replayOf } from "./replay";
import { DEFAULTS, problemOf, requestBody, type Sampling } from "./sampling";
import { SamplingPanel } from "./sampling-panel";
import { usePlayground } from "./use-playground";

const Snippets = lazyPart(() => import("@/components/snippets"), "Snippets");

export function PlaygroundPage() {
  useTitle("Playground");
  const tenant = useTenant();
  const request = useSearch({ from: "/t/$tenant/playground", select: ({ request }) => request });
  return <Playground key={`${tenant} ${request}`} tenant={tenant} request={request} />;
}

function Playground({ tenant, request }: { tenant: string; request: string | undefined }) {
  const { data, error, refetch } = useQuery(modelsQuery(tenant));
  const kept = useQuery({ ...transcriptQuery(tenant, request ?? ""), enabled: request !== undefined });
  const may = useCan("infer");
  // The last that there were: a host that restarts takes no conversation away.
  const [models, setModels] = useState<Model[]>();
  if (data?.length && data !== models) setModels(data);
  if (may && kept.error) return <PlaygroundLayout>{<ErrorNotice error={asApiError(kept.error)} onRetry={() => void kept.refetch()} />}</PlaygroundLayout>;
  if (may && models && !kept.isLoading) return <Board models={models} replay={kept.data ? replayOf(kept.data) : null} />;
  if (error) return <PlaygroundLayout>{<ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}</PlaygroundLayout>;
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
    <Empty icon={<MessagesSquare />} title="Your role may not run inference">
      Ask an owner or admin of this tenant for the developer role.
    </Empty>
  );
}

function NoModels() {
  return (
    <Empty icon={<MessagesSquare />} title="No model is being served" command="make run">
      No engine host is connected, so there is nothing to talk to. Start one and this page fills by itself.
    </Empty>
  );
}

/** The model asked for in the address, else the first adapter, else the base. */
function firstModel(models: Model[], asked: string | undefined): string {
  return asked ?? models.find(({ kind }) => kind === "adapter")?.id ?? models[0]?.id ?? "";
}

/** What a new column starts with: something that is not shown yet. */
function nextModel(models: Model[], shown: string[]): string {
  return models.find(({ id }) => !shown.includes(id))?.id ?? models[0]?.id ?? "";
}

function Board({ models, replay }: { models: Model[]; replay: Replay | null }) {
  const asked = useSearch({ from: "/t/$tenant/playground", select: ({ model }) => model });
  const { state, dispatch, ask, sendResults, stop, remove } = usePlayground(firstModel(models, asked), replay);
  const [sampling, setSampling] = useState({ ...DEFAULTS, system: replay?.system ?? DEFAULTS.system });
  const [panel, setPanel] = useState(true);
  const shown = state.columns.map(({ model }) => model);
  const change = (part: Partial<Sampling>) => setSampling((old) => ({ ...old, ...part }));
  const add = () => {
    dispatch({ type: "add-column", model: nextModel(models, shown) });
    // Three columns and the panel do not fit beside each other on most screens.
    if (state.columns.length >= 2) setPanel(false);
  };
  const problem = problemOf(sampling);
  const running = state.turns.some(({ answers }) => Object.values(answers).some(isRunning));
  return (
    <div className="flex h-[calc(100dvh-3.25rem)] min-h-0 md:h-dvh">
      <div className="flex min-w-0 flex-1 flex-col gap-3 p-3 sm:p-5">
        <Toolbar
          full={state.columns.length >= MOST_COLUMNS}
          empty={state.turns.length === 0}
          running={running}
          sampling={sampling}
          onSampling={change}
          code={problem ? null : requestBody(shown[0] ?? "", messagesFor([], 0, sampling.system, { prompt: lastPrompt(state.turns), results: [] }), sampling)}
          panel={panel}
          onPanel={() => setPanel(!panel)}
          onAdd={add}
          onClear={() => dispatch({ type: "clear" })}
        />
        <div
          className={cn(
            "scroll-quiet grid min-h-0 flex-1 snap-x gap-3 overflow-x-auto",
            "auto-cols-[minmax(min(100%,17rem),1fr)] grid-flow-col grid-rows-[minmax(0,1fr)]",
          )}
        >
          {state.columns.map((column) => (
            <ColumnView
              key={column.id}
              column={column}
              turns={state.turns}
              models={models}
              onChoose={(model) => dispatch({ type: "choose", column: column.id, model })}
              onRemove={state.columns.length > 1 ? () => remove(column.id) : null}
              onResults={running || problem ? null : (results) => sendResults(column, results, sampling)}
              empty={<Welcome model={column.model} onExample={(prompt) => ask(prompt, sampling)} disabled={running || problem !== null} />}
            />
          ))}
        </div>
        <Composer initial={replay?.prompt} running={running} problem={problem} onSend={(prompt) => ask(prompt, sampling)} onStop={stop} />
      </div>
      {panel && (
        <aside aria-label="Sampling" className="scroll-quiet hidden w-72 shrink-0 overflow-y-auto border-l bg-surface p-5 xl:block">
          <h2 className="mb-4 text-sm font-semibold">Sampling</h2>
          <SamplingPanel sampling={sampling} onChange={change} />
        </aside>
      )}
    </div>
  );
}

const lastPrompt = (turns: Turn[]) => turns.findLast(({ prompt }) => prompt)?.prompt ?? EXAMPLES[0]!;

interface ToolbarProps {
  full: boolean;
  empty: boolean;
  running: boolean;
  sampling: Sampling;
  onSampling: (change: Partial<Sampling>) => void;
  /** The request as it would be sent; null while it cannot be. */
  code: SnippetInput["body"] | null;
  panel: boolean;
  onPanel: () => void;
  onAdd: () => void;
  onClear: () => void;
}

function Toolbar({ full, empty, running, sampling, onSampling, code, panel, onPanel, onAdd, onClear }: ToolbarProps) {
  const [open, setOpen] = useState(false);
  const [showing, setShowing] = useState(false);
  return (
    <div className="flex items-center gap-2">
      <h1 className="mr-auto text-xl font-semibold tracking-tight">Playground</h1>
      <Button variant="ghost" disabled={empty || running} onClick={onClear} aria-label="Clear the conversation">
        <Trash2 /> <span className="max-lg:hidden">Clear</span>
      </Button>
      <Button variant="ghost" disabled={!code} onClick={() => setShowing(true)} aria-label="Copy as code" data-testid="playground-code">
        <Code /> <span className="max-lg:hidden">Code</span>
      </Button>
      <Button onClick={() => setOpen(true)} className="xl:hidden" aria-label="Sampling">
        <SlidersHorizontal /> <span className="max-sm:hidden">Sampling</span>
      </Button>
      <Button variant={panel ? "secondary" : "ghost"} onClick={onPanel} aria-pressed={panel} className="max-xl:hidden">
        <SlidersHorizontal /> Sampling
      </Button>
      <Button disabled={full} onClick={onAdd} data-testid="playground-add" aria-label="Compare: add a column">
        <Columns2 /> <span className="max-sm:hidden">Compare</span>
      </Button>
      <Dialog open={showing} onOpenChange={setShowing} title="Copy as code" description="The last message with these settings, as the first column’s model is asked." className="max-w-2xl!">
        <div className="min-w-0">
          <Suspense fallback={<Skeleton className="h-40 w-full" />}>{code && <Snippets body={code} origin={location.origin} />}</Suspense>
        </div>
      </Dialog>
      <Dialog open={open} onOpenChange={setOpen} title="Sampling">
        <SamplingPanel sampling={sampling} onChange={onSampling} />
      </Dialog>
    </div>
  );
}

interface WelcomeProps {
  model: string;
  disabled: boolean;
  onExample: (prompt: string) => void;
}

function Welcome({ model, disabled, onExample }: WelcomeProps) {
  return (
    <div className="m-auto w-full max-w-sm py-6 text-center">
      <p className="text-base font-medium">Talk to {model}</p>
      <p className="mt-0.5 text-sm text-ink-3">Every column gets the same message.</p>
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
