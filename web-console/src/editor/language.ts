/** Lua, with what the server adds to it. */
import { StreamLanguage } from "@codemirror/language";
import { lua } from "@codemirror/legacy-modes/mode/lua";

const OURS = /^(KEYS|ARGV|(redis|server|cjson|cmsgpack|struct|bit)(\.\w+)?)$/;

export const language = StreamLanguage.define({
  ...lua,
  token(stream, state) {
    const style = lua.token(stream, state);
    return style === "variable" && OURS.test(stream.current()) ? "builtin" : style;
  },
});
