/** Requests to the server that the page came from. There are no others. */
import { signal } from "@preact/signals";
import { percentEncoded, type Text } from "./text";
import type { Json } from "./types";

/** An error that the server tells of. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly body: Record<string, unknown>;

  constructor(status: number, body: Record<string, unknown>) {
    super(typeof body.detail === "string" ? body.detail : `status ${status}`);
    this.status = status;
    this.code = typeof body.code === "string" ? body.code : "ERR";
    this.body = body;
  }
}

/** Nobody answered. */
export class Lost extends Error {
  constructor() {
    super("The server does not respond. It may be stopped, or the network is down.");
  }
}

export interface Ask {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
  /** The media type of the answer. An error in this type is returned, not thrown. */
  accept?: string;
}

/** What the sign-in dialog has to know. */
export interface SignIn {
  /** Why the last attempt failed; null before the first one. */
  refused: string | null;
  /** Whether an attempt is under way. */
  busy: boolean;
  /** Takes an Authorization header, or null to give up. */
  answer(header: string | null): void;
}

/** Whether the server answered when it was last asked. */
export const online = signal(true);
/** Whether the server accepted the user of the last request. */
export const admitted = signal(true);
/** Set while the server requires a user and password. */
export const signIn = signal<SignIn | null>(null);
/** The database that keys are looked for in. */
export const database = signal(0);

const SECRET = "moonshard.secret";

const REFUSED = "The user or password is wrong, or the user is disabled.";

async function send(path: string, ask: Ask, secret: string | null): Promise<Response> {
  const { method, body, signal: abort, accept } = ask;
  // Without `X-Requested-With`, the server would make the browser open its own prompt over HTTP without TLS.
  const headers: Record<string, string> = {
    "X-Moonshard-Db": String(database.value),
    "X-Requested-With": "XMLHttpRequest",
  };
  if (secret) headers.Authorization = secret;
  if (accept) headers.Accept = accept;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init: RequestInit = { method: method ?? (body === undefined ? "GET" : "POST"), headers };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (abort) init.signal = abort;
  try {
    const response = await fetch(path, init);
    online.value = true;
    admitted.value = response.status !== 401;
    return response;
  } catch (error) {
    if (abort?.aborted) throw error;
    online.value = false;
    throw new Lost();
  }
}

/** Shows the dialog until its answer is accepted, which the result says, or the user gives up. */
async function askForSecret(): Promise<boolean> {
  let refused: string | null = null;
  try {
    for (;;) {
      const before = refused;
      const header = await new Promise<string | null>((answer) => {
        signIn.value = { refused: before, busy: false, answer };
      });
      if (header === null) return false;
      // One request tries the password, so that a wrong one counts as one attempt, however many requests wait.
      const abort = new AbortController();
      signIn.value = { refused: null, busy: true, answer: () => abort.abort() };
      try {
        const tried = await send("/v1/command", { body: { args: ["PING"] }, signal: abort.signal }, header);
        if (tried.status !== 401) {
          sessionStorage.setItem(SECRET, header);
          return true;
        }
        refused = REFUSED;
      } catch (error) {
        if (abort.signal.aborted) return false;
        refused = error instanceof Lost ? error.message : String(error);
      }
    }
  } finally {
    signIn.value = null;
  }
}

let asking: Promise<boolean> | null = null;

/** All requests that are refused at the same time wait for the same dialog. */
function learnSecret(): Promise<boolean> {
  asking ??= askForSecret().finally(() => {
    asking = null;
  });
  return asking;
}

/** An answer, after having asked for a password if that is what it takes. */
export async function request(path: string, ask: Ask = {}): Promise<Response> {
  for (;;) {
    const secret = sessionStorage.getItem(SECRET);
    const response = await send(path, ask, secret);
    if (response.ok) return response;
    if (response.status === 401) {
      // The user may have signed in while this request was under way.
      if (!asking && sessionStorage.getItem(SECRET) !== secret) continue;
      if (await learnSecret()) continue;
    }
    if (ask.accept && response.headers.get("Content-Type") === ask.accept) return response;
    const body: unknown = await response.json().catch(() => ({}));
    throw new Problem(response.status, typeof body === "object" && body ? { ...body } : {});
  }
}

/** An answer's JSON. */
export async function ask<T>(path: string, more: Ask = {}): Promise<T> {
  const response = await request(path, more);
  if (response.status === 204) return undefined as T;
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (more.signal?.aborted) throw error;
    online.value = false;
    throw new Lost();
  }
}

/** Runs a command. */
export async function command(args: (Text | number)[], signal?: AbortSignal): Promise<Json> {
  const more: Ask = { body: { args } };
  if (signal) more.signal = signal;
  return (await ask<{ reply: Json }>("/v1/command", more)).reply;
}

const RESP = "application/resp";

/** Runs a command and returns its reply as RESP3, also if it is an error. */
export async function rawCommand(args: Text[], signal: AbortSignal): Promise<Uint8Array> {
  const response = await request("/v1/command", { body: { args }, signal, accept: RESP });
  return new Uint8Array(await response.arrayBuffer());
}

/** A key as it is named in paths. */
export function keyPath(key: Text): string {
  return `/v1/key/${percentEncoded(key)}`;
}
