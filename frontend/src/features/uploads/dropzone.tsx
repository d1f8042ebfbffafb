import { FolderUp } from "lucide-react";
import { type DragEvent, useRef, useState } from "react";
import { Button } from "@/components/button";
import { cn } from "@/lib/cn";
import { filesFromDrop } from "@/lib/dropped-files";

interface DropzoneProps {
  onFiles: (files: File[]) => void;
  compact: boolean;
}

/** An area that accepts files, a folder or an archive, by drop or with a file dialog. */
export function Dropzone({ onFiles, compact }: DropzoneProps) {
  const [over, setOver] = useState(false);
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    void filesFromDrop(event.dataTransfer).then(onFiles);
  };
  return (
    // Only a drop target: keyboards and screen readers use the two buttons inside.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions
    <div
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
      role="group"
      aria-label="Adapter files"
      className={cn(
        "rounded-card border border-dashed border-line-2 bg-surface transition-colors",
        compact && "flex items-center gap-3 px-4 py-3",
        over && "border-accent bg-accent-soft",
      )}
    >
      <label
        data-testid="upload-dropzone"
        className={cn(
          "flex cursor-pointer rounded-card focus-within:outline-2 focus-within:outline-offset-2 focus-within:outline-focus",
          compact ? "flex-1 py-1" : "flex-col items-center px-6 pt-10 text-center",
        )}
      >
        <input
          type="file"
          multiple
          className="sr-only"
          onChange={(event) => {
            onFiles([...(event.target.files ?? [])]);
            // Clears the input, so that selecting the same files again is a change.
            event.target.value = "";
          }}
        />
        {!compact && (
          <span className="mb-3 grid size-11 place-items-center rounded-xl border bg-fill text-ink-2">
            <FolderUp className="size-5" aria-hidden />
          </span>
        )}
        <span className="text-sm font-medium">
          {compact ? "Drop or choose other files" : "Drop the folder that PEFT wrote, or click to choose files"}
        </span>
        {!compact && (
          <span className="mt-1 text-sm text-ink-3">
            <code className="font-mono text-xs">adapter_config.json</code> and{" "}
            <code className="font-mono text-xs">adapter_model.safetensors</code>, or one .zip, .tar or .tar.gz of them
          </span>
        )}
      </label>
      <div className={cn("flex justify-center", !compact && "pt-4 pb-10")}>
        <FolderButton onFiles={onFiles} />
      </div>
    </div>
  );
}

function FolderButton({ onFiles }: { onFiles: (files: File[]) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button size="sm" onClick={() => input.current?.click()}>
        Choose a folder
      </Button>
      <input
        ref={input}
        type="file"
        hidden
        aria-label="Folder"
        // React has no property for folder inputs; browsers read the plain attribute.
        {...{ webkitdirectory: "" }}
        onChange={(event) => onFiles([...(event.target.files ?? [])])}
      />
    </>
  );
}
