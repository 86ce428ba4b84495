/** Lua in a thread of its own, so that a script that never ends does not hold up the page. */
import { LuaFactory } from "wasmoon";
import wasm from "wasmoon/dist/glue.wasm?url";
import cjson from "./cjson.lua?raw";
import prelude from "./prelude.lua?raw";
import { type FromWorker, listLiteral, type ToWorker } from "./protocol";

interface Stepper {
  begin(script: string, keys: string, args: string): string;
  answer(reply: string): string;
}

const scope = self as unknown as { postMessage(told: FromWorker): void };

async function make(): Promise<{ stepper: Stepper }> {
  const lua = await new LuaFactory(wasm).createEngine({ injectObjects: false });
  lua.global.set("prelude", prelude);
  lua.global.set("cjson_source", cjson);
  lua.global.set("emit", (told: string) => scope.postMessage(JSON.parse(told)));
  lua.doStringSync(`
    local stepper = assert(load(prelude, '=prelude'))(emit)
    local cjson = assert(load(cjson_source, '=cjson'))()
    function begin(script, keys, args) return stepper.begin(script, keys, args, cjson) end
    function answer(reply) return stepper.answer(reply) end
  `);
  return { stepper: { begin: lua.global.get("begin"), answer: lua.global.get("answer") } };
}

const ready = make();

addEventListener("message", async ({ data }: MessageEvent<ToWorker>) => {
  try {
    const { stepper } = await ready;
    const told =
      "begin" in data
        ? stepper.begin(data.begin.script, listLiteral(data.begin.keys), listLiteral(data.begin.args))
        : stepper.answer(data.answer);
    scope.postMessage(JSON.parse(told));
  } catch (error) {
    scope.postMessage({ failed: { message: String(error), line: null } });
  }
});
