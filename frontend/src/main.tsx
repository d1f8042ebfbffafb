import { hashKey, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { lazy, StrictMode, Suspense, useSyncExternalStore } from "react";
import { createRoot } from "react-dom/client";
import { followSystemTheme } from "@/app/preferences";
import { makeQueryClient } from "@/app/query-client";
import { makeRouter } from "@/app/router";
import { sessionQuery } from "@/features/session/queries";
import { current, subscribe } from "@/components/toast";
import { followSignOut } from "@/lib/tab-storage";
import { loaded } from "@/lib/lazy-part";
import "./styles.css";

const Toasts = lazy(() => loaded(() => import("@/components/toasts")));

const client = makeQueryClient();
const router = makeRouter(client);

followSystemTheme();
followSignOut();

// When a session starts or ends, the guards run again and choose between the login page and the console.
const session = hashKey(sessionQuery.queryKey);
client.getQueryCache().subscribe(({ type, query }) => {
  if (type === "updated" && query.queryHash === session && query.state.status === "success") void router.invalidate();
});

/** The view of messages is loaded with the first message, but the live region for screen readers must exist before. */
function Notes() {
  const any = useSyncExternalStore(subscribe, () => current().length > 0);
  return (
    <div aria-live="polite">
      {any && (
        <Suspense>
          <Toasts />
        </Suspense>
      )}
    </div>
  );
}

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no #root element.");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
      <Notes />
    </QueryClientProvider>
  </StrictMode>,
);
