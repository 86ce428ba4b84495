/** What a visitor has to fetch. */
import assert from "node:assert/strict";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const SITE = join(import.meta.dirname, "../dist/site");
/** Of all files but the WebAssembly module of Lua, which the check of what is typed loads later. */
const MOST_BYTES = 400 * 1024;

test("the console is small", () => {
  const files = readdirSync(SITE, { recursive: true, encoding: "utf8" });
  const packed = files.filter((name) => name.endsWith(".gz") && !name.endsWith(".wasm.gz"));
  assert.ok(
    packed.some((name) => name.endsWith(".js.gz")),
    "it is built",
  );
  const bytes = packed.reduce((sum, name) => sum + statSync(join(SITE, name)).size, 0);
  assert.ok(bytes <= MOST_BYTES, `${bytes} bytes, at most ${MOST_BYTES}`);
});
