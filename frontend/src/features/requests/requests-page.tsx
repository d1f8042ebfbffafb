import { useInfiniteQuery } from "@tanstack/react-query";
import { Activity } from "lucide-react";
import { asApiError } from "@/api/errors";
import { Page } from "@/app/page";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { useTenant } from "@/features/session/queries";
import { snippet } from "@/lib/snippets";
import { requestsQuery } from "./queries";
import { RequestTable } from "./request-table";

export function RequestsPage() {
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(requestsQuery(useTenant()));
  const rows = data?.pages.flatMap((page) => page.results);
  return (
    <Page title="Requests" note="Every request as the engine counted it. Prompts and answers are not kept.">
      {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}
      {!error && (
        <Card>
          {!rows && <SkeletonRows rows={8} />}
          {rows?.length === 0 && <NoRequests />}
          {rows && rows.length > 0 && <RequestTable rows={rows} />}
          {hasNextPage && (
            <div className="border-t p-2.5 text-center">
              <Button size="sm" variant="ghost" busy={isFetchingNextPage} onClick={() => void fetchNextPage()}>
                {isFetchingNextPage ? "Loading…" : "Load older requests"}
              </Button>
            </div>
          )}
        </Card>
      )}
    </Page>
  );
}

function NoRequests() {
  return (
    <Empty icon={<Activity />} title="No requests yet" command={snippet("curl", { model: "lorikeet-demo", origin: location.origin })}>
      They appear here the moment they end. Send the first one from the playground, or with a key:
    </Empty>
  );
}
