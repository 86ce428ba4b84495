import { render } from "preact";
import { loadPlaces } from "./api/places";
import { App } from "./app";
import { loadDocs } from "./editor/docs";
import { keepDraft, lastDraft } from "./run/drafts";
import { EXAMPLES } from "./run/examples";
import { loadBudgets } from "./run/server";
import { followDraft, ofFragment } from "./run/share";
import { EMPTY, load } from "./run/state";
import { followAddress } from "./ui/route";
import { followTheme } from "./ui/theme";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/run.css";
import "./styles/result.css";
import "./styles/pages.css";

followTheme();
followAddress();
const shared = location.hash ? await ofFragment(location.hash) : null;
load(shared ?? lastDraft() ?? EXAMPLES[0]?.draft ?? EMPTY);
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
