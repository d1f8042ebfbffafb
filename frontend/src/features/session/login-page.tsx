import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { z } from "@/lib/zod";
import { Link, useSearch } from "@tanstack/react-router";
import { ApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { Field, Input } from "@/components/field";
import { Mark, Wordmark } from "@/components/logo";
import { ErrorNotice } from "@/components/notices";
import { useTitle } from "@/lib/use-title";
import { safePath } from "@/lib/safe-path";
import { ProviderButton } from "./provider-button";
import { SecondFactorStep } from "./second-factor-step";
import { type Credentials, useLogin, useSession } from "./queries";

const SCHEMA = z.object({
  email: z.email("Enter the e-mail address of your account."),
  password: z.string().check(z.minLength(1, "Enter your password.")),
});

export function LoginPage() {
  useTitle("Sign in");
  const awaitsSecondFactor = useSession().second_factor_for !== null;
  return (
    <main id="main" className="grid min-h-dvh lg:grid-cols-[minmax(0,1fr)_minmax(0,1.1fr)]">
      <div className="flex flex-col px-6 py-8 sm:px-12">
        <Wordmark />
        <div className="mx-auto flex w-full max-w-sm flex-1 flex-col justify-center py-10">
          {awaitsSecondFactor ? (
            <>
              <h1 className="mb-6 text-2xl font-semibold tracking-tight">Confirm that it is you</h1>
              <SecondFactorStep />
            </>
          ) : (
            <>
              <h1 className="text-2xl font-semibold tracking-tight">Sign in</h1>
              <p className="mt-1 mb-6 text-sm text-ink-3">To your organisation's adapters and API keys.</p>
              <SignInOptions />
            </>
          )}
        </div>
        {!awaitsSecondFactor && (
          <p className="text-xs text-ink-3">
            No account? An owner or admin of your organisation can invite you. A fresh installation prints a demo login
            when it starts.
          </p>
        )}
      </div>
      <Showcase />
    </main>
  );
}

function SignInOptions() {
  const { password_login, provider, sign_in_error } = useSession();
  const next = useSearch({ strict: false, select: (search) => search.next });
  return (
    <div className="grid gap-4">
      {sign_in_error && <ErrorNotice error={new ApiError(sign_in_error, 403)} />}
      <ProviderButton next={safePath(next)} />
      {provider && password_login && <p className="text-center text-xs text-ink-3">or with your password</p>}
      {password_login && <LoginForm />}
    </div>
  );
}

function LoginForm() {
  const login = useLogin();
  const form = useForm<Credentials>({ resolver: zodResolver(SCHEMA), defaultValues: { email: "", password: "" } });
  const { errors } = form.formState;
  // A new session makes the router run its guards again, which redirect.
  const submit = form.handleSubmit((credentials) => login.mutate(credentials));
  return (
    <form onSubmit={submit} noValidate className="grid gap-4">
      <ErrorNotice error={login.error} />
      <Field label="E-mail" error={errors.email?.message}>
        <Input {...form.register("email")} type="email" autoComplete="username" data-testid="login-email" />
      </Field>
      <Field label="Password" error={errors.password?.message}>
        <Input
          {...form.register("password")}
          type="password"
          autoComplete="current-password"
          data-testid="login-password"
        />
      </Field>
      <Button type="submit" variant="primary" busy={login.isPending} className="mt-1 h-9.5!" data-testid="login-submit">
        {login.isPending ? "Signing in…" : "Sign in"}
      </Button>
      <Link to="/forgot-password" className="text-sm text-blue-text underline underline-offset-2">
        Forgot your password?
      </Link>
    </form>
  );
}

/** A picture of one base model with many adapters. */
function Showcase() {
  return (
    <div aria-hidden className="relative hidden overflow-hidden border-l bg-[#0c1f19] text-white lg:block">
      <div className="absolute inset-0 bg-[radial-gradient(60rem_40rem_at_85%_-10%,#2f62dd66,transparent_60%),radial-gradient(50rem_40rem_at_10%_110%,#1a9d6677,transparent_60%),radial-gradient(24rem_20rem_at_100%_90%,#f2694a44,transparent_60%)]" />
      <div className="relative flex h-full flex-col justify-center px-16 xl:px-24">
        <Mark className="mb-8 size-14" />
        <p className="max-w-md text-3xl leading-tight font-semibold tracking-tight text-balance">
          One base model. Thousands of voices.
        </p>
        <p className="mt-3 max-w-md text-base text-white/75">
          Upload a LoRA adapter, see it checked in seconds, and stream from it beside all the others, on GPUs that are
          yours.
        </p>
        <AdapterLanes />
      </div>
    </div>
  );
}

const LANES = [
  { name: "support@v7", width: "w-4/5", tone: "bg-[#3ecf8e]" },
  { name: "sql-writer@v2", width: "w-3/5", tone: "bg-[#6d97f5]" },
  { name: "tone-of-voice@live", width: "w-11/12", tone: "bg-[#ff8a6d]" },
  { name: "triage@v12", width: "w-2/5", tone: "bg-[#3ecf8e]" },
];

function AdapterLanes() {
  return (
    <div className="mt-10 grid max-w-md gap-2.5 font-mono text-xs">
      {LANES.map(({ name, width, tone }) => (
        <div key={name} className="grid grid-cols-[9.5rem_1fr] items-center gap-4">
          <span className="text-white/80">{name}</span>
          <span className="h-1.5 rounded-full bg-white/10">
            <span className={`block h-full rounded-full ${width} ${tone}`} />
          </span>
        </div>
      ))}
    </div>
  );
}
