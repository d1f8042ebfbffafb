import { Link } from "@tanstack/react-router";
import { MessagesSquare } from "lucide-react";
import type { RequestRecord, Transcript } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { CopyButton } from "@/components/code-block";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { replayOf } from "@/features/playground/replay";
import { useCan, useTenant } from "@/features/session/queries";
import { recordingQuery } from "./queries";
import { transcriptQuery } from "./transcript-query";

/** The stored prompt and answer of a request, with a button that replays it. */
export function TranscriptView({ row }: { row: RequestRecord }) {
  const tenant = useTenant();
  const { data, error, refetch } = useQuery(transcriptQuery(tenant, row.id));
  if (error) return <ErrorNotice error={error} onRetry={refetch} />;
  if (data === undefined) return <Skeleton className="h-16 w-full" />;
  return (
    <>
      {data ? <Text transcript={data} /> : <NotKept />}
      <ReplayLink row={row} whole={data !== null && replayOf(data) !== null} />
    </>
  );
}

/** Endpoints whose requests have a conversation. */
const REPLAYED: RequestRecord["endpoint"][] = ["chat.completions", "completions"];

interface ReplayProps {
  row: RequestRecord;
  /** Replays the conversation and settings if they are stored; otherwise only the model is the same. */
  whole: boolean;
}

/** A link to the playground with the version that answered, even if its name now refers to another one. */
export function ReplayLink({ row, whole }: ReplayProps) {
  const tenant = useTenant();
  const may = useCan("infer");
  if (!may || row.model === "" || !REPLAYED.includes(row.endpoint)) return null;
  const model = row.adapter && row.version ? `${row.adapter}@v${row.version}` : row.model;
  return (
    <Button asChild size="sm" className="justify-self-start">
      <Link to="/t/$tenant/playground" params={{ tenant }} search={{ model, request: whole ? row.id : undefined }}>
        <MessagesSquare /> {whole ? "Replay in the playground" : "Open the model in the playground"}
      </Link>
    </Button>
  );
}

const WITHOUT_ROLE: Record<string, string> = {
  text: "prompt",
  token_ids: "prompt, as token ids",
  suffix: "text behind the answer",
};

function NotKept() {
  const { data } = useQuery(recordingQuery(useTenant()));
  const why = data?.enabled
    ? `It was received before recording began, or more than ${data.days} days ago.`
    : "Recording is off; an admin can turn it on under Settings.";
  return <p className="text-xs text-ink-3">The text of this request was not stored. {why}</p>;
}

function Text({ transcript }: { transcript: Transcript }) {
  const several = transcript.answers.length > 1;
  return (
    <div className="grid min-w-0 gap-2" data-testid="transcript">
      {transcript.prompt.map((message, index) => (
        <Piece key={index} who={WITHOUT_ROLE[message.role] ?? message.role} text={message.content} />
      ))}
      {transcript.answers.map((answer, index) => (
        <Piece key={index} who={several ? `answer ${index + 1}` : "answer"} text={answer} answer />
      ))}
      {transcript.cut && (
        <p className="text-xs text-amber-text">
          The text was too long to store in full. It shows the end of the prompt and the beginning of the answer.
        </p>
      )}
    </div>
  );
}

function Piece({ who, text, answer = false }: { who: string; text: string; answer?: boolean }) {
  return (
    <figure className={answer ? "rounded-lg border border-line-2 bg-surface" : "rounded-lg border bg-fill"}>
      <figcaption className="flex min-h-8 items-center justify-between border-b px-3 text-xs text-ink-3">
        {who}
        {text && <CopyButton text={text} label={`Copy ${who}`} />}
      </figcaption>
      <div
        className="max-h-72 overflow-y-auto px-3 py-2 text-sm break-words whitespace-pre-wrap"
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
        tabIndex={0}
        role="region"
        aria-label={who}
      >
        {text || <span className="text-ink-3">nothing</span>}
      </div>
    </figure>
  );
}
