/** Whether a script compiles, as far as the Lua of the browser knows: at once, and without the server. */
import type { Answer, Question } from "./lua-worker";
import workerAddress from "./lua-worker.ts?worker&url";

interface Policy {
  createScriptURL(address: string): string;
}
interface Policies {
  createPolicy(name: string, rules: Policy): Policy;
}

/** The page's strict policy lets no address become a script unless this rule says that it is the worker's. */
function newWorker(): Worker {
  const own: Policy = {
    createScriptURL: (address) => {
      if (address !== workerAddress) throw new TypeError(`${address} is not the worker`);
      return address;
    },
  };
  const policies = (globalThis as { trustedTypes?: Policies }).trustedTypes;
  const policy = policies?.createPolicy("lua", own) ?? own;
  return new Worker(policy.createScriptURL(workerAddress), { type: "module" });
}

const waiting = new Map<number, (complaint: string | null) => void>();
let worker: Worker | undefined;
let newest = 0;

function start(): Worker {
  const started = newWorker();
  started.onmessage = ({ data }: MessageEvent<Answer>) => {
    waiting.get(data.number)?.(data.complaint);
    waiting.delete(data.number);
  };
  // A browser without WebAssembly: the server alone says what is wrong.
  started.onerror = () => {
    for (const answer of waiting.values()) answer(null);
    waiting.clear();
  };
  return started;
}

/** Why a script does not compile; null if it does, or if that is not known. */
export function complaintOf(script: string): Promise<string | null> {
  worker ??= start();
  newest += 1;
  const question: Question = { number: newest, script };
  worker.postMessage(question);
  return new Promise((answer) => waiting.set(question.number, answer));
}
