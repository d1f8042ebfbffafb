import { Download, TriangleAlert } from "lucide-react";
import { Button } from "@/components/button";
import { CopyButton } from "@/components/code-block";

/** New recovery codes, which are shown once. */
export function RecoveryCodes({ codes }: { codes: string[] }) {
  const text = codes.join("\n");
  return (
    <>
      <div className="flex gap-2.5 rounded-lg bg-amber-soft px-3.5 py-2.5 text-sm text-amber-text">
        <TriangleAlert className="mt-0.5 size-4 shrink-0" aria-hidden />
        <p>
          Save these codes where you find them without your phone or computer, such as a password manager. Each signs
          you in once in place of your second factor. They are not shown again.
        </p>
      </div>
      <div className="flex items-start gap-2 rounded-lg border border-line-2 bg-fill py-3 pr-1.5 pl-4">
        <ul
          aria-label="Recovery codes"
          data-testid="recovery-codes"
          className="grid min-w-0 flex-1 grid-cols-2 gap-x-4 gap-y-1.5 font-mono text-sm"
        >
          {codes.map((code) => (
            <li key={code}>{code}</li>
          ))}
        </ul>
        <CopyButton text={text} label="Copy recovery codes" />
      </div>
      <div>
        <Button size="sm" asChild>
          <a
            download="lorikeet-recovery-codes.txt"
            href={`data:text/plain;charset=utf-8,${encodeURIComponent(`${text}\n`)}`}
          >
            <Download /> Download
          </a>
        </Button>
      </div>
    </>
  );
}
