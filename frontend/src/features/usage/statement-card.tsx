import { getRouteApi } from "@tanstack/react-router";
import type { Statement, StatementLine } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Card } from "@/components/card";
import { type Option, Select } from "@/components/field";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { Table, Td, Tr } from "@/components/table";
import { useTenant } from "@/features/session/queries";
import { day, money, number } from "@/lib/format";
import { statementQuery } from "./queries";

const KINDS: Record<StatementLine["kind"], { label: string; unit: string }> = {
  input: { label: "Input tokens", unit: "per million" },
  cached_input: { label: "Cached input tokens", unit: "per million" },
  batch_input: { label: "Input tokens of batches", unit: "per million" },
  batch_cached_input: { label: "Cached input tokens of batches", unit: "per million" },
  batch_output: { label: "Output tokens of batches", unit: "per million" },
  output: { label: "Output tokens", unit: "per million" },
  storage: { label: "Adapter storage", unit: "per GB-month" },
};

/** Returns the current month and the eleven before, in UTC, as the API names them. */
export function months(now: Date): string[] {
  return Array.from({ length: 12 }, (_, back) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1)).toISOString().slice(0, 7),
  );
}

const title = (month: string) =>
  new Date(`${month}-01T00:00:00Z`).toLocaleDateString("en-GB", { month: "long", year: "numeric", timeZone: "UTC" });

const route = getRouteApi("/t/$tenant/usage");

export function StatementCard() {
  const choices = months(new Date());
  const { month = choices[0]! } = route.useSearch();
  const navigate = route.useNavigate();
  const setMonth = (chosen: string) =>
    void navigate({
      search: (now) => ({ ...now, month: chosen === choices[0] ? undefined : chosen }),
      resetScroll: false,
    });
  const { data, error, refetch } = useQuery(statementQuery(useTenant(), month));
  const picker = (
    <Select
      aria-label="Month"
      value={month}
      onChange={(event) => setMonth(event.target.value)}
      className="h-8! w-44!"
      options={(choices.includes(month) ? choices : [...choices, month]).map((choice): Option => [
        choice,
        title(choice),
      ])}
    />
  );
  return (
    <Card title="Statement" note="Tokens and storage at the prices of each day" actions={picker}>
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={3} />}
      {data && (data.lines.length === 0 ? <Nothing statement={data} /> : <Lines statement={data} />)}
    </Card>
  );
}

function Nothing({ statement }: { statement: Statement }) {
  return (
    <p className="px-4 py-8 text-center text-sm text-ink-3">
      {statement.currency === null
        ? "This installation has no prices, so nothing is charged."
        : `No charges for ${title(statement.month)}.`}
    </p>
  );
}

/** Returns the hours of a month such as "2028-02". */
function hoursOf(month: string): number {
  const [year, number] = month.split("-").map(Number);
  return 24 * new Date(Date.UTC(year!, number, 0)).getUTCDate();
}

/** Returns a line's quantity in the unit of its price: storage, in byte-hours, as GB for the whole month. */
const quantity = (line: StatementLine, month: string) =>
  line.kind === "storage"
    ? `${(line.quantity / 1e9 / hoursOf(month)).toPrecision(3)} GB-months`
    : number(line.quantity);

function Lines({ statement }: { statement: Statement }) {
  const { currency } = statement;
  return (
    <Table
      label={`Statement of ${title(statement.month)}`}
      columns={["Item", "Days", ["Quantity", "text-right"], ["Price", "text-right"], ["Amount", "text-right"]]}
      foot={
        <tr className="border-t">
          <th scope="row" colSpan={4} className="h-11 px-4 font-semibold">
            <span className="flex items-center gap-2.5">
              Total {!statement.complete && <Badge tone="blue">so far</Badge>}
            </span>
          </th>
          <td className="tnum px-4 text-right text-base font-semibold" data-testid="statement-total">
            {money(statement.total_micros, currency)}
          </td>
        </tr>
      }
    >
      {statement.lines.map((line) => (
        <Tr key={`${line.kind} ${line.price_version}`}>
          <Td className="font-medium">
            {KINDS[line.kind].label}
            {line.base_model && (
              <span className="block max-w-60 truncate font-normal text-ink-3" title={line.base_model}>
                on <bdi>{line.base_model}</bdi>
              </span>
            )}
          </Td>
          <Td className="text-ink-2">
            {day(line.first)} – {day(line.last)}
          </Td>
          <Td className="tnum text-right">{quantity(line, statement.month)}</Td>
          <Td className="tnum text-right text-ink-2">
            {money(line.unit_price_micros, currency)} {KINDS[line.kind].unit}
          </Td>
          <Td className="tnum text-right font-medium">{money(line.amount_micros, currency)}</Td>
        </Tr>
      ))}
    </Table>
  );
}
