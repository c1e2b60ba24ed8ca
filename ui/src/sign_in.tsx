// Asks for the token over the page. The server answers with a cookie; the page keeps no token.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { signIn } from "./api";
import { Dialog } from "./parts/dialog";
import { store } from "./store";

export function SignIn(): JSX.Element {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await signIn(token);
      setToken("");
      store.access = "granted";
      store.connection.connect();
      await store.checkAccess();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <Dialog title="Sign in" closable={false} onClose={() => undefined}>
      <form onSubmit={(event) => void submit(event)}>
        <label>
          <span>
            The token of this orchestrator (<code>--token</code> or <code>SQUALL_TOKEN</code>)
          </span>
          <input
            type="password"
            autocomplete="current-password"
            required
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
            aria-describedby="sign-in-problem"
          />
        </label>
        <p id="sign-in-problem" class="problem" role="alert">
          {problem}
        </p>
        <button type="submit" class="button primary">
          Sign in
        </button>
      </form>
    </Dialog>
  );
}
