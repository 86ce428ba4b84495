/** Requests to the server that the page came from. There are no others. */
import { signal } from "@preact/signals";
import type { Text } from "./text";
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
}

/** Whether the server answered when it was last asked. */
export const online = signal(true);
/** Set while the server wants to know who asks; to be called with an Authorization header, or null to give up. */
export const askedForSecret = signal<((header: string | null) => void) | null>(null);
/** The database that keys are looked for in. */
export const database = signal(0);

const SECRET = "moonshard.secret";

async function send(path: string, { method, body, signal: abort }: Ask): Promise<Response> {
  const headers: Record<string, string> = { "X-Moonshard-Db": String(database.value) };
  const secret = sessionStorage.getItem(SECRET);
  if (secret) headers.Authorization = secret;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init: RequestInit = { method: method ?? (body === undefined ? "GET" : "POST"), headers };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (abort) init.signal = abort;
  try {
    const response = await fetch(path, init);
    online.value = true;
    return response;
  } catch (error) {
    if (abort?.aborted) throw error;
    online.value = false;
    throw new Lost();
  }
}

let learning: Promise<string | null> | null = null;

/** All requests that are refused at the same time wait for the same answer. */
function learnSecret(): Promise<string | null> {
  learning ??= new Promise<string | null>((resolve) => {
    askedForSecret.value = (header) => {
      askedForSecret.value = null;
      if (header) sessionStorage.setItem(SECRET, header);
      learning = null;
      resolve(header);
    };
  });
  return learning;
}

/** An answer, after having asked for a password if that is what it takes. */
export async function request(path: string, ask: Ask = {}): Promise<Response> {
  let response = await send(path, ask);
  while (response.status === 401 && (await learnSecret())) response = await send(path, ask);
  if (response.ok) return response;
  const body: unknown = await response.json().catch(() => ({}));
  throw new Problem(response.status, typeof body === "object" && body ? { ...body } : {});
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

/** A key as it is named in paths. */
export function keyPath(key: Text): string {
  if (typeof key === "string") return `/v1/key/${encodeURIComponent(key)}`;
  const bytes = Array.from(atob(key.base64), (letter) => letter.charCodeAt(0).toString(16).padStart(2, "0"));
  return `/v1/key/${bytes.map((byte) => `%${byte}`).join("")}`;
}
