/** The sign-in dialog. The password is kept until the tab is closed, and nowhere else. */
import { signal } from "@preact/signals";
import { signIn } from "../api/http";
import { Button, Dialog, Notice } from "./parts";

const user = signal("");
const secret = signal("");

/** With a name it is a password, without one a token. */
function header(): string {
  if (!user.value) return `Bearer ${secret.value}`;
  const bytes = new TextEncoder().encode(`${user.value}:${secret.value}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

export function Login() {
  const now = signIn.value;
  if (!now) return null;
  const send = (event: Event) => {
    event.preventDefault();
    if (now.busy) return;
    const value = header();
    secret.value = "";
    now.answer(value);
  };
  return (
    <Dialog title="Sign in" close={() => now.answer(null)}>
      <form class="form" onSubmit={send}>
        {now.refused && <Notice sort="bad">{now.refused}</Notice>}
        <label>
          User (leave it empty for a token)
          <input
            value={user.value}
            autocomplete="username"
            onInput={(event) => (user.value = event.currentTarget.value)}
          />
        </label>
        <label>
          Password or token
          <input
            type="password"
            required
            value={secret.value}
            autocomplete="current-password"
            onInput={(event) => (secret.value = event.currentTarget.value)}
          />
        </label>
        <p class="quiet">Stored until this tab is closed.</p>
        <Button sort="primary" type="submit" aria-disabled={now.busy}>
          {now.busy ? "Signing in…" : "Sign in"}
        </Button>
      </form>
    </Dialog>
  );
}
