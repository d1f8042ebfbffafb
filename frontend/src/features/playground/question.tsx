import { ChevronLeft, ChevronRight, Pencil } from "lucide-react";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { Button } from "@/components/button";
import type { Turn } from "./conversation";

interface QuestionProps {
  turn: Turn;
  /** The turn and its branches. */
  branches: Turn[];
  /** Sends another message in place of this one; null while nothing can be sent. */
  onEdit: ((prompt: string) => void) | null;
  onShow: (turn: number) => void;
}

/** The user's message, with buttons for its other branches. */
export function Question({ turn, branches, onEdit, onShow }: QuestionProps) {
  // ID of the turn that is edited. Switching to another branch ends the edit.
  const [edited, setEdited] = useState<number | null>(null);
  const pencil = useRef<HTMLButtonElement>(null);
  const stopEditing = () => {
    setEdited(null);
    requestAnimationFrame(() => pencil.current?.focus());
  };
  if (edited === turn.id && onEdit) {
    const send = (prompt: string) => {
      setEdited(null);
      onEdit(prompt);
    };
    return <Editor prompt={turn.prompt} onCancel={stopEditing} onSend={send} />;
  }
  return (
    <div className="group/question flex min-w-0 flex-col items-end gap-0.5">
      {turn.prompt && (
        <>
          {/* Beside the text, whose own first letter says in which direction it runs. */}
          <span className="sr-only">You: </span>
          <p
            dir="auto"
            className="max-w-[90%] rounded-2xl rounded-br-md bg-fill-2 px-3.5 py-2 text-base wrap-anywhere whitespace-pre-wrap"
          >
            {turn.prompt}
          </p>
        </>
      )}
      <div className="flex items-center gap-1 text-ink-3 empty:hidden">
        {turn.prompt && (
          <button
            ref={pencil}
            type="button"
            aria-label="Edit the message"
            title="Edit the message"
            disabled={!onEdit}
            onClick={() => setEdited(turn.id)}
            className={`${TOOL} opacity-0 group-hover/question:opacity-100 focus-visible:opacity-100 disabled:invisible max-md:opacity-100`}
          >
            <Pencil className="size-3.5" />
          </button>
        )}
        {branches.length > 1 && <Branches turn={turn} branches={branches} onShow={onShow} />}
      </div>
    </div>
  );
}

const TOOL = "inline-grid size-6 place-items-center rounded-md hover:bg-fill-2 hover:text-ink disabled:opacity-40";

function Branches({ turn, branches, onShow }: Pick<QuestionProps, "turn" | "branches" | "onShow">) {
  const place = branches.findIndex(({ id }) => id === turn.id);
  const step = (by: number, label: string, icon: React.ReactNode) => {
    const to = branches[place + by];
    return (
      // The button at the end is not disabled, because it would lose the focus.
      <button
        type="button"
        aria-label={label}
        title={label}
        aria-disabled={!to}
        onClick={() => to && onShow(to.id)}
        className={`${TOOL} aria-disabled:opacity-40`}
      >
        {icon}
      </button>
    );
  };
  return (
    <div
      role="group"
      aria-label="Branches of the conversation"
      className="flex items-center text-xs"
      data-testid="playground-branches"
    >
      {step(-1, "Previous branch", <ChevronLeft className="size-3.5" />)}
      <span className="tnum whitespace-nowrap" aria-live="polite">
        {place + 1} of {branches.length}
      </span>
      {step(1, "Next branch", <ChevronRight className="size-3.5" />)}
    </div>
  );
}

interface EditorProps {
  prompt: string;
  onCancel: () => void;
  onSend: (prompt: string) => void;
}

/** An input for another message. Enter sends it, Escape discards it. */
function Editor({ prompt, onCancel, onSend }: EditorProps) {
  const [text, setText] = useState(prompt);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    area.current?.focus();
    area.current?.setSelectionRange(prompt.length, prompt.length);
  }, [prompt]);
  const send = () => text.trim() && onSend(text.trim());
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Escape") onCancel();
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <div className="grid gap-2 rounded-xl border border-line-2 bg-surface p-2 focus-within:border-focus">
      <textarea
        ref={area}
        aria-label="The message"
        dir="auto"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={keys}
        data-testid="playground-edit"
        className="scroll-quiet field-sizing-content max-h-64 min-h-11 w-full resize-none bg-transparent px-2 pt-1 text-base outline-none"
      />
      <div className="flex justify-end gap-2">
        <Button size="sm" variant="ghost" onClick={onCancel}>
          Cancel
        </Button>
        <Button size="sm" variant="primary" disabled={!text.trim()} onClick={send}>
          Send
        </Button>
      </div>
    </div>
  );
}
