import { Code, Columns2, Diff, Link2, SlidersHorizontal, Trash2 } from "lucide-react";
import { Suspense, useState } from "react";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Skeleton } from "@/components/notices";
import { toast } from "@/components/toast";
import { copyText } from "@/lib/clipboard";
import { lazyPart, loaded } from "@/lib/lazy-part";
import type { SnippetInput } from "@/lib/snippets";
import { comparableTurns, MAX_COLUMNS, type Playground, type Turn } from "./conversation";
import type { Sampling } from "./sampling";

const SamplingPanel = lazyPart(() => import("./sampling-panel"), "SamplingPanel");
const Snippets = lazyPart(() => import("@/components/snippets"), "Snippets");
const Differences = lazyPart(() => import("./differences"), "Differences");

interface ToolbarProps {
  state: Playground;
  /** The turns of the branch that is shown. */
  turns: Turn[];
  running: boolean;
  sampling: Sampling;
  onSampling: (change: Partial<Sampling>) => void;
  /** Shows the code of the request; null while nothing can be sent. */
  onCode: (() => void) | null;
  panel: boolean;
  onPanel: () => void;
  onAdd: () => void;
  onClear: () => void;
}

export function Toolbar({
  state: { columns, turns: all },
  turns,
  running,
  sampling,
  onSampling,
  onCode,
  panel,
  onPanel,
  onAdd,
  onClear,
}: ToolbarProps) {
  const [open, setOpen] = useState<"sampling" | "differences" | null>(null);
  const close = () => setOpen(null);
  return (
    <div className="flex flex-wrap items-center gap-2 max-sm:gap-1">
      <h1 className="mr-auto text-xl font-semibold tracking-tight max-sm:w-full">Playground</h1>
      <Button
        variant="ghost"
        disabled={all.length === 0 || running}
        onClick={onClear}
        aria-label="Clear the conversation"
        title="Clear the conversation"
      >
        <Trash2 /> <span className="max-2xl:hidden">Clear</span>
      </Button>
      <Button
        variant="ghost"
        onClick={() => void copyLink({ models: columns.map(({ model }) => model), sampling })}
        aria-label="Copy a link to these columns and settings"
        title="Copy a link to these columns and settings"
        data-testid="playground-link"
      >
        <Link2 /> <span className="max-2xl:hidden">Link</span>
      </Button>
      <Button
        variant="ghost"
        disabled={!onCode}
        onClick={() => onCode?.()}
        aria-label="Copy as code"
        title="Copy as code"
        data-testid="playground-code"
      >
        <Code /> <span className="max-lg:hidden">Code</span>
      </Button>
      {columns.length > 1 && (
        <Button
          variant="ghost"
          disabled={comparableTurns(turns, columns).length === 0}
          onClick={() => setOpen("differences")}
          aria-label="Differences between answers"
          title="Differences between answers"
          data-testid="playground-diff"
        >
          <Diff /> <span className="max-lg:hidden">Differences</span>
        </Button>
      )}
      <Button onClick={() => setOpen("sampling")} className="xl:hidden" aria-label="Sampling">
        <SlidersHorizontal /> <span className="max-sm:hidden">Sampling</span>
      </Button>
      <Button variant={panel ? "secondary" : "ghost"} onClick={onPanel} aria-pressed={panel} className="max-xl:hidden">
        <SlidersHorizontal /> Sampling
      </Button>
      <Button
        disabled={columns.length >= MAX_COLUMNS}
        onClick={onAdd}
        data-testid="playground-add"
        aria-label="Compare: add a column"
      >
        <Columns2 /> <span className="max-sm:hidden">Compare</span>
      </Button>
      <Dialog open={open === "sampling"} onClose={close} title="Sampling" done>
        <Suspense fallback={<Skeleton className="h-96 w-full" />}>
          <SamplingPanel sampling={sampling} onChange={onSampling} />
        </Suspense>
      </Dialog>
      <Dialog
        open={open === "differences"}
        onClose={close}
        title="Differences"
        description="Two answers to one question, word by word."
        className="max-w-3xl!"
        done
      >
        <Suspense fallback={<Skeleton className="h-40 w-full" />}>
          <Differences columns={columns} turns={turns} />
        </Suspense>
      </Dialog>
    </div>
  );
}

async function copyLink(setup: { models: string[]; sampling: Sampling }): Promise<void> {
  try {
    const { linkTo } = await loaded(() => import("./link"));
    const link = await linkTo(location.origin + location.pathname, setup);
    if (await copyText(link))
      toast.good("Link copied", "It restores columns and settings. It does not contain the conversation or keys.");
    else throw new Error("The browser does not allow the console to copy.");
  } catch (cause) {
    toast.bad(cause);
  }
}

/** A dialog with the code of a request in several languages. */
export function CodeDialog({ body, onClose }: { body: SnippetInput["body"]; onClose: () => void }) {
  return (
    <Dialog
      open={body !== undefined}
      onClose={onClose}
      title="Copy as code"
      description={
        body &&
        `The complete request to ${body.model}: messages, settings, schema and tools. The code reads the API key from your environment.`
      }
      className="max-w-2xl!"
      done
    >
      <div className="min-w-0">
        <Suspense fallback={<Skeleton className="h-40 w-full" />}>
          {body && <Snippets body={body} origin={location.origin} />}
        </Suspense>
      </div>
    </Dialog>
  );
}
