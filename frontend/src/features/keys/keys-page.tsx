import { getRouteApi } from "@tanstack/react-router";
import { KeyRound, Plus } from "lucide-react";
import { Suspense, useState } from "react";
import type { ApiKey } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Status } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { SearchInput } from "@/components/search-input";
import { SegmentedControl } from "@/components/segmented-control";
import { SortTh } from "@/components/sort-th";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { RelativeTime } from "@/components/relative-time";
import { toastThen } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { fullTime } from "@/lib/format";
import { useNow } from "@/lib/use-now";
import { lazyPart } from "@/lib/lazy-part";
import { DEFAULT_SORT, type KeysSearch } from "./search";
import { KEYS_PAGE, keysPageQuery, useRevokeKey } from "./queries";
import { RotateKey } from "./rotate-key";

const CreateKey = lazyPart(() => import("./create-key"), "CreateKey");
const EditKey = lazyPart(() => import("./edit-key"), "EditKey");

const route = getRouteApi("/t/$tenant/keys");

export function KeysPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const show = (change: KeysSearch) =>
    void navigate({
      search: (now) => ({ ...now, page: undefined, ...change }),
      replace: true,
      resetScroll: change.page !== search.page,
    });
  const { data, error, refetch } = useQuery(keysPageQuery(useTenant(), search));
  const creating = search.create ?? false;
  const setCreating = (create: boolean) => show({ create: create || undefined, page: search.page });
  const none = data?.total === 0 && !search.q && !search.revoked;
  const may = useCan("keys.write");
  const create = may && (
    <Button variant="primary" onClick={() => setCreating(true)}>
      <Plus /> Create key
    </Button>
  );
  return (
    <Page
      title="API keys"
      note="API keys authenticate requests as this tenant. The secret is shown only once, when the key is created."
      actions={data && !none ? create : null}
    >
      <ErrorNotice error={error} onRetry={refetch} />
      {data && (
        <div className="mb-3 flex flex-wrap items-center gap-2">
          <SegmentedControl
            label="Which keys"
            value={search.revoked ? "revoked" : "active"}
            options={VIEWS}
            onChange={(view) => show({ revoked: view === "revoked" || undefined })}
          />
          {(data.total > KEYS_PAGE || search.q) && (
            <SearchInput
              landmark="API keys"
              className="w-full sm:w-80"
              label="Search by name or key prefix"
              value={search.q}
              onChange={(q) => show({ q })}
            />
          )}
        </div>
      )}
      {!error && (
        <Card>
          {!data && <SkeletonRows rows={4} />}
          {none && (
            <Empty icon={<KeyRound />} title="No API keys yet" action={create}>
              Create one key per application, so that you can revoke each separately. Keys work with any OpenAI client.
            </Empty>
          )}
          {data?.total === 0 && !none && (
            <Empty icon={<KeyRound />} title={search.q ? "No matches" : "No revoked keys"}>
              {search.q ? "No key matches this search." : "Keys that you revoke are listed here."}
            </Empty>
          )}
          {data && data.total > 0 && (
            <KeyTable
              keys={data.rows}
              revoked={search.revoked ?? false}
              sort={search.sort ?? DEFAULT_SORT}
              onSort={(sort) => show({ sort: sort === DEFAULT_SORT ? undefined : sort })}
            />
          )}
          {data && <Pager page={search.page} size={KEYS_PAGE} total={data.total} onPage={(page) => show({ page })} />}
        </Card>
      )}
      <Suspense>{creating && may && <CreateKey onClose={() => setCreating(false)} />}</Suspense>
    </Page>
  );
}

const VIEWS = [
  { value: "active", label: "Active" },
  { value: "revoked", label: "Revoked" },
] as const;

const ACTS = ["Edit", "Rotate", "Revoke"] as const;
type Act = (typeof ACTS)[number];

type Sort = NonNullable<KeysSearch["sort"]>;

interface KeyTableProps {
  keys: ApiKey[];
  revoked: boolean;
  sort: Sort;
  onSort: (sort: Sort) => void;
}

function KeyTable({ keys, revoked, ...header }: KeyTableProps) {
  const [chosen, setChosen] = useState<{ key: ApiKey; act: Act } | null>(null);
  const may = useCan("keys.write");
  const close = () => setChosen(null);
  return (
    <>
      <Table
        label="API keys"
        columns={[
          <SortTh label="Name" column="name" {...header} />,
          ["Key", "hidden lg:table-cell"],
          ["State", "hidden sm:table-cell"],
          ["Permissions", "hidden xl:table-cell"],
          <SortTh label="Last used" column="last_used_at" className="hidden lg:table-cell" {...header} />,
          revoked ? (
            ["Revoked", "hidden xl:table-cell"]
          ) : (
            <SortTh label="Expires" column="expires_at" className="hidden xl:table-cell" {...header} />
          ),
          <SortTh label="Created" column="created_at" className="hidden xl:table-cell" {...header} />,
          <HiddenTh label="Actions" />,
        ]}
      >
        {keys.map((key) => (
          <Tr key={key.id} className={key.revoked_at ? "text-ink-3" : undefined}>
            <Td className="max-w-32 font-medium sm:max-w-44 lg:max-w-60 xl:max-w-44">
              <span className="block truncate" title={key.name} dir="auto">
                {key.name}
              </span>
              <span className="font-normal sm:hidden">
                <KeyState apiKey={key} />
              </span>
            </Td>
            <Td className="hidden font-mono text-xs lg:table-cell">lk_{key.prefix}_…</Td>
            <Td className="hidden sm:table-cell">
              <KeyState apiKey={key} />
            </Td>
            <Td className="hidden max-w-36 text-xs whitespace-normal! text-ink-3 xl:table-cell">
              {key.scopes.join(", ") || "none"}
            </Td>
            <Td className="hidden lg:table-cell">
              <RelativeTime at={key.last_used_at} />
            </Td>
            <Td className="hidden xl:table-cell">
              {revoked ? (
                <RelativeTime at={key.revoked_at} />
              ) : key.expires_at ? (
                new Date(key.expires_at).toLocaleDateString("en-GB", { dateStyle: "medium" })
              ) : (
                <span className="text-ink-3">never</span>
              )}
            </Td>
            <Td className="hidden xl:table-cell">
              <RelativeTime at={key.created_at} />
            </Td>
            <Td className="pl-0! text-right max-sm:pr-2!">
              <span className="inline-flex">
                {may &&
                  !key.revoked_at &&
                  ACTS.map((act) => (
                    <Button
                      key={act}
                      size="sm"
                      variant="ghost"
                      className="max-sm:px-2!"
                      aria-label={`${act} ${key.name}`}
                      onClick={() => setChosen({ key, act })}
                    >
                      {act}
                    </Button>
                  ))}
              </span>
            </Td>
          </Tr>
        ))}
      </Table>
      <Suspense>{chosen?.act === "Edit" && <EditKey apiKey={chosen.key} onClose={close} />}</Suspense>
      {chosen?.act === "Rotate" && <RotateKey apiKey={chosen.key} onClose={close} />}
      {chosen?.act === "Revoke" && <Revoke apiKey={chosen.key} onClose={close} />}
    </>
  );
}

function KeyState({ apiKey }: { apiKey: ApiKey }) {
  const now = useNow(60_000);
  if (apiKey.revoked_at) return <Status tone="neutral" label="Revoked" />;
  if (apiKey.expires_at && Date.parse(apiKey.expires_at) < now) return <Status tone="amber" label="Expired" />;
  if (apiKey.previous_until && Date.parse(apiKey.previous_until) > now) {
    return (
      <span title={`The old secret works until ${fullTime(apiKey.previous_until)}`}>
        <Status tone="blue" label="Rotating" />
      </span>
    );
  }
  return <Status tone="green" label="Active" />;
}

function Revoke({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const revoke = useRevokeKey(useTenant());
  const confirm = () => revoke.mutate(apiKey.id, toastThen(`Revoked ${apiKey.name}`, onClose));
  return (
    <Confirm
      onClose={onClose}
      title={`Revoke ${apiKey.name}?`}
      description="Requests from every application that uses this key are refused immediately. This cannot be undone."
      action="Revoke key"
      write={revoke}
      onConfirm={confirm}
    />
  );
}
