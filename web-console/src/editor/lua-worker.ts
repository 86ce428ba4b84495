/** Lua in a thread of its own: scripts are compiled there, and never run. */
import { LuaFactory } from "wasmoon";
import wasm from "wasmoon/dist/glue.wasm?url";

export interface Question {
  number: number;
  script: string;
}

export interface Answer {
  number: number;
  /** Why the script does not compile. */
  complaint: string | null;
}

/** What Lua 5.4 objects to and the server's 5.1 does not. */
const NEWER = /invalid escape sequence|goto|<const>|<close>/;

type Compile = (script: string) => string | undefined;

async function make(): Promise<Compile> {
  const lua = await new LuaFactory(wasm).createEngine({ injectObjects: false });
  lua.doStringSync(`
    function complaint(script)
      local compiled, why = load(script, "=user_script", "t")
      return not compiled and why or nil
    end
  `);
  return lua.global.get("complaint");
}

let compile: Promise<Compile> | undefined;

async function complaintOf(script: string): Promise<string | null> {
  compile ??= make();
  try {
    // The first line of a script may be about flags.
    const complaint = (await compile)(script.replace(/^#/, "--"));
    return complaint && !NEWER.test(complaint) ? complaint : null;
  } catch {
    // The server was lost before Lua had arrived: it is fetched again for the next script.
    compile = undefined;
    return null;
  }
}

addEventListener("message", async ({ data }: MessageEvent<Question>) => {
  const answer: Answer = { number: data.number, complaint: await complaintOf(data.script) };
  postMessage(answer);
});
