import { Check, Copy } from "lucide-react";
import { Fragment, useEffect, useState } from "react";
import { cn } from "@/lib/cn";
import { copyText } from "@/lib/clipboard";

/** A button that copies text and confirms it visibly and to screen readers. */
export function CopyButton({ text, label = "Copy", className }: { text: string; label?: string; className?: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1600);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      onClick={async () => setCopied(await copyText(text))}
      className={cn(
        "inline-grid size-7 shrink-0 place-items-center rounded-md text-ink-3 hover:bg-fill-2 hover:text-ink",
        className,
      )}
    >
      {copied ? <Check className="size-3.5 text-accent-text" /> : <Copy className="size-3.5" />}
      <span className="sr-only" role="status">
        {copied ? "Copied" : ""}
      </span>
    </button>
  );
}

const TOKENS =
  /((?:#|\/\/) .*$)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\])*')|\b(import|from|as|async|await|def|for|in|with|if|elif|break|const|new|print|curl)\b/gm;
const TOKEN_STYLE = ["", "text-ink-3", "text-accent-text", "text-blue-text"];

/** Colours comments, strings and keywords of a snippet without a highlighter library. */
function Highlighted({ code }: { code: string }) {
  const pieces: { text: string; kind: number }[] = [];
  let end = 0;
  for (const match of code.matchAll(TOKENS)) {
    pieces.push({ text: code.slice(end, match.index), kind: 0 });
    pieces.push({ text: match[0], kind: match.slice(1).findIndex((group) => group !== undefined) + 1 });
    end = match.index + match[0].length;
  }
  pieces.push({ text: code.slice(end), kind: 0 });
  return pieces.map(({ text, kind }, index) =>
    kind === 0 ? (
      <Fragment key={index}>{text}</Fragment>
    ) : (
      <span key={index} className={TOKEN_STYLE[kind]}>
        {text}
      </span>
    ),
  );
}

export function CodeBlock({ code, label, className }: { code: string; label: string; className?: string }) {
  return (
    <div className={cn("group relative rounded-lg border bg-fill", className)}>
      {/* A scrolling region must be reachable by keyboard. */}
      <pre
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
        tabIndex={0}
        role="region"
        aria-label={label}
        className="scroll-quiet overflow-x-auto rounded-lg p-3 pr-11 font-mono text-xs leading-5"
      >
        <code>
          <Highlighted code={code} />
        </code>
      </pre>
      <CopyButton text={code} label={`Copy ${label.toLowerCase()}`} className="absolute top-1.5 right-1.5 bg-fill" />
    </div>
  );
}
