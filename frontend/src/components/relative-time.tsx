import { ago, fullTime } from "@/lib/format";
import { useNow } from "@/lib/use-now";

/** A time such as "4 min ago", with the exact time on hover. */
export function RelativeTime({ at, never = "never" }: { at: string | null | undefined; never?: string }) {
  const now = useNow(15_000);
  if (!at) return <span className="text-ink-3">{never}</span>;
  return (
    <time dateTime={at} title={fullTime(at)}>
      {ago(at, now)}
    </time>
  );
}
