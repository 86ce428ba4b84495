import { render } from "preact";
import { loadPlaces } from "./api/places";
import { App } from "./app";
import { loadDocs } from "./editor/docs";
import { keepDraft, lastDraft } from "./run/drafts";
import { EXAMPLES } from "./run/examples";
import { loadBudgets } from "./run/server";
import { followDraft, sharedDraft } from "./run/share";
import { EMPTY, load } from "./run/state";
import { followAddress } from "./ui/route";
import { followTheme } from "./ui/theme";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/run.css";
import "./styles/result.css";
import "./styles/pages.css";
import "./styles/keys.css";
import "./styles/cli.css";

followTheme();
load((await sharedDraft()) ?? lastDraft() ?? EXAMPLES[0]?.draft ?? EMPTY);
// After the draft: the database of the address wins over that of the draft.
followAddress();
keepDraft();
followDraft();
void loadDocs();
void loadPlaces();
void loadBudgets();
const place = document.getElementById("app");
if (place) {
  place.textContent = "";
  render(<App />, place);
}
