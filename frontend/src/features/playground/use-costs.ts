import { type Dispatch, useEffect, useRef } from "react";
import { api, unwrap } from "@/api/client";
import type { RequestRecord } from "@/api/types";
import { useLiveEvent } from "@/app/live-connection";
import { type Action, type Answer, type Cost, isRunning, type Playground } from "./conversation";

/** After so long the event that tells of a request is taken for lost, and the ledger is asked. */
const LATE_MS = 5000;

const costOf = ({ cost_micros, currency }: RequestRecord): Cost => ({ micros: cost_micros, currency });

/** Writes beside each answer what it cost, as the ledger has it. */
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
      // Once: a request that the ledger does not have by then was refused, or its host died with it.
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
  const { results } = await unwrap(
    api.GET("/api/tenants/{tenant}/requests", { params: { path: { tenant }, query: { id, limit: 1 } } }),
  );
  return results[0];
}
