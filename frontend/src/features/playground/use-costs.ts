import { type Dispatch, useEffect, useRef } from "react";
import { request } from "@/api/client";
import type { RequestRecord } from "@/api/types";
import { useLiveEvent } from "@/app/live-connection";
import { type Action, type Answer, type Cost, isRunning, type Playground } from "./conversation";

/** Milliseconds after which the event of a request counts as lost, and the ledger is read. */
const LATE_MS = 5000;

const costOf = ({ cost_micros, currency }: RequestRecord): Cost => ({ micros: cost_micros, currency });

/** Adds the cost of each answer from the ledger. */
export function useCosts(tenant: string, state: Playground, dispatch: Dispatch<Action>): void {
  useLiveEvent("usage.tick", (data) => {
    const row = data as RequestRecord;
    dispatch({ type: "billed", requestId: row.id, cost: costOf(row) });
  });
  const requested = useRef(new Set<string>());
  const missing = state.turns
    .flatMap(({ answers }) => Object.values(answers).filter(isUnbilled))
    .map(({ requestId }) => requestId);
  const wanted = [...new Set(missing)].join(" ");
  useEffect(() => {
    const ids = wanted.split(" ").filter((id) => id && !requested.current.has(id));
    if (ids.length === 0) return;
    const timer = setTimeout(() => {
      // The ledger is read once: a request that is missing by then was refused, or its host stopped during it.
      ids.forEach((id) => requested.current.add(id));
      void Promise.allSettled(ids.map((id) => recordOf(tenant, id))).then((records) =>
        records.forEach(
          (one) =>
            one.status === "fulfilled" &&
            one.value &&
            dispatch({ type: "billed", requestId: one.value.id, cost: costOf(one.value) }),
        ),
      );
    }, LATE_MS);
    return () => clearTimeout(timer);
  }, [tenant, wanted, dispatch]);
}

const isUnbilled = (answer: Answer) => answer.requestId !== null && answer.cost === null && !isRunning(answer);

async function recordOf(tenant: string, id: string): Promise<RequestRecord | undefined> {
  const { results } = await request("GET /api/tenants/{tenant}/requests", { tenant, query: { id, limit: 1 } });
  return results[0];
}
