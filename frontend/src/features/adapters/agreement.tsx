import type { Agreement, PromptAgreement, VersionEffect } from "@/api/types";
import { cn } from "@/lib/cn";

/**
 * The answers of a version on a quantised base beside those on the unquantised base, and the cost of quantisation for
 * the base.
 */
export function AgreementView({ agreement, effect }: { agreement: Agreement; effect: VersionEffect }) {
  const { outcome, base, adapter } = agreement;
  return (
    <div data-testid="agreement" className="grid gap-3 border-t pt-4">
      <h4 className="text-sm font-medium">Agreement with the unquantised base</h4>
      {outcome === "pending" && (
        <p className="text-sm text-ink-3">
          Measurement in progress. The host reads the unquantised weights while it serves requests; the result appears
          here automatically.
        </p>
      )}
      {outcome === "not_measured" && <p className="text-sm text-ink-2">Not measured. {agreement.reason}</p>}
      {base && adapter && (
        <>
          {outcome === "differs" && <p className="text-sm text-amber-text">{agreement.reason}</p>}
          <Figures base={base} adapter={adapter} />
          <p className="text-xs text-ink-3">
            The share of tokens that the unquantised model also chooses after the same text, and the distance between
            the log-probabilities of both on the prompts. {reference(agreement)}
          </p>
          <OtherTokens agreement={agreement} effect={effect} />
        </>
      )}
    </div>
  );
}

const reference = ({ dequantised }: Agreement) =>
  dequantised
    ? "The base checkpoint is quantised; it is compared with its dequantised weights."
    : "The base checkpoint holds the unquantised weights.";

function Figures({
  base,
  adapter,
}: {
  base: NonNullable<Agreement["base"]>;
  adapter: NonNullable<Agreement["adapter"]>;
}) {
  const rows = [
    { name: "With this version", figures: adapter },
    { name: "Base model only", figures: base },
  ];
  return (
    <div className="overflow-x-auto">
      <table className="w-full max-w-xl text-sm">
        <thead className="text-left text-xs text-ink-3">
          <tr>
            <th className="py-1 pr-3 font-normal">
              <span className="sr-only">Model</span>
            </th>
            <th className="py-1 pr-3 text-right font-normal">Matching tokens</th>
            <th className="py-1 pr-3 text-right font-normal">Distance, mean</th>
            <th className="py-1 text-right font-normal">largest</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ name, figures }) => (
            <tr key={name} className="border-t">
              <th scope="row" className="py-1.5 pr-3 text-left font-normal text-ink-2">
                {name}
              </th>
              <td className="tnum py-1.5 pr-3 text-right">
                {figures.agreeing} of {figures.tokens}
              </td>
              <td className="tnum py-1.5 pr-3 text-right">{figures.mean_distance.toFixed(3)}</td>
              <td className="tnum py-1.5 text-right">{figures.largest_distance.toFixed(2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The prompts whose answers differ on the quantised base, for the version or for the base itself. */
function OtherTokens({ agreement, effect }: { agreement: Agreement; effect: VersionEffect }) {
  const others = agreement.prompts.flatMap((result, index) => {
    const served = effect.prompts[index];
    return served && (result.adapter.agreeing < result.adapter.tokens || result.base.agreeing < result.base.tokens)
      ? [{ result, served, index }]
      : [];
  });
  if (others.length === 0) return null;
  return (
    <ul className="grid gap-3">
      {others.map(({ result, served, index }) => (
        <li key={index} className="rounded-lg border px-3.5 py-2.5 text-sm">
          <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1">
            <dt className="text-xs text-ink-3">Prompt</dt>
            <dd className="min-w-0 font-mono text-xs break-words text-ink-3">{served.prompt}</dd>
            <Chosen
              name="Version"
              result={result.adapter}
              chosen={result.adapter_tokens}
              served={served.adapter_tokens}
            />
            <Chosen name="Base" result={result.base} chosen={result.base_tokens} served={served.base_tokens} />
          </dl>
        </li>
      ))}
    </ul>
  );
}

function Chosen({
  name,
  result,
  chosen,
  served,
}: {
  name: string;
  result: PromptAgreement["base"];
  chosen: string[];
  served: string[];
}) {
  if (result.agreeing === result.tokens) return null;
  return (
    <>
      <dt className="text-xs text-ink-3">{name}, unquantised</dt>
      <dd className="min-w-0 font-mono text-xs break-words whitespace-pre-wrap">
        {chosen.map((token, index) => (
          <span key={index} className={cn(token !== served[index] && "rounded bg-amber-soft")}>
            {token}
          </span>
        ))}
      </dd>
    </>
  );
}
