/** Asks who asks, when the server wants to know. Kept until the tab is closed, and nowhere else. */
import { signal } from "@preact/signals";
import { askedForSecret } from "../api/http";
import { Button, Dialog } from "./parts";

const user = signal("");
const secret = signal("");

/** With a name it is a password, without one a token. */
function header(): string {
  if (!user.value) return `Bearer ${secret.value}`;
  const bytes = new TextEncoder().encode(`${user.value}:${secret.value}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

export function Login() {
  const answer = askedForSecret.value;
  if (!answer) return null;
  const send = (event: Event) => {
    event.preventDefault();
    const value = header();
    secret.value = "";
    answer(value);
  };
  return (
    <Dialog title="Log in" close={() => answer(null)}>
      <form class="form" onSubmit={send}>
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
        <Button sort="primary" type="submit">
          Sign in
        </Button>
      </form>
    </Dialog>
  );
}
