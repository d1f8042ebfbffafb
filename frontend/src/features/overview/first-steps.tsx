import { Link } from "@tanstack/react-router";
import { ArrowRight, Check, X } from "lucide-react";
import type { ReactNode } from "react";
import type { Overview } from "@/api/types";
import { hide, useHidden } from "@/app/preferences";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { useCan, useTenant } from "@/features/session/queries";

interface Step {
  done: boolean;
  title: string;
  note: string;
  link: ReactNode;
}

/** The first steps of a new tenant. The card disappears when all are done or the person hides it. */
export function FirstSteps({ done }: { done: Overview["first_steps"] }) {
  const tenant = useTenant();
  const name = `first-steps.${tenant}`;
  const hidden = useHidden(name);
  const mayUpload = useCan("adapters.write");
  const steps = useSteps(done);
  if (hidden || !mayUpload || steps.every((step) => step.done)) return null;
  return (
    <Card
      aria-label="First steps"
      data-testid="first-steps"
      title="First steps"
      note={`${steps.filter((step) => step.done).length} of ${steps.length} done`}
      actions={
        <Button size="icon" variant="ghost" aria-label="Hide first steps" onClick={() => hide(name)}>
          <X />
        </Button>
      }
    >
      <ol className="grid gap-px bg-line sm:grid-cols-2 xl:grid-cols-4">
        {steps.map((step, index) => (
          <li key={step.title} className="flex gap-3 bg-surface p-4">
            <span className="grid size-6 shrink-0 place-items-center rounded-full bg-accent-soft text-xs font-semibold text-accent-text">
              {step.done ? <Check className="size-3.5" role="img" aria-label="done" /> : index + 1}
            </span>
            <div className="min-w-0">
              <h3 className="text-sm font-medium">{step.title}</h3>
              <p className="text-xs text-ink-3">{step.note}</p>
              {!step.done && (
                <p className="mt-2 text-sm font-medium text-accent-text [&_a]:inline-flex [&_a]:items-center [&_a]:gap-1 [&_svg]:size-3.5">
                  {step.link}
                </p>
              )}
            </div>
          </li>
        ))}
      </ol>
    </Card>
  );
}

function useSteps(done: Overview["first_steps"]): Step[] {
  const tenant = useTenant();
  const mayInvite = useCan("members.write");
  const steps: Step[] = [
    {
      done: done.uploaded,
      title: "Upload an adapter",
      note: "The folder written by PEFT, or a .zip or .tar.gz of it.",
      link: (
        <Link to="/t/$tenant/upload" params={{ tenant }}>
          Upload <ArrowRight />
        </Link>
      ),
    },
    {
      done: done.called,
      title: "Call it",
      note: "In the playground, or with a key from any OpenAI client.",
      link: (
        <Link to="/t/$tenant/playground" params={{ tenant }}>
          Open playground <ArrowRight />
        </Link>
      ),
    },
    {
      done: done.limited,
      title: "Set a limit",
      note: "Limit requests, tokens or cost per key.",
      link: (
        <Link to="/t/$tenant/limits" params={{ tenant }}>
          Open limits <ArrowRight />
        </Link>
      ),
    },
  ];
  const invite: Step = {
    done: done.invited,
    title: "Invite a person",
    note: "Choose the role that they need.",
    link: (
      <Link to="/t/$tenant/members" params={{ tenant }}>
        Open members <ArrowRight />
      </Link>
    ),
  };
  return mayInvite ? [...steps, invite] : steps;
}
