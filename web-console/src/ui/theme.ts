/** Light or dark: as the system says, until somebody chooses. */
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEPT = "moonshard.theme";

function kept(): Theme {
  const value = localStorage.getItem(KEPT);
  return value === "light" || value === "dark" ? value : "system";
}

export const theme = signal<Theme>(kept());

/** What the next press of the button does. */
export function nextTheme(): Theme {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = theme.value === "system" ? (dark ? "dark" : "light") : theme.value;
  return now === "dark" ? "light" : "dark";
}

export function followTheme(): void {
  effect(() => {
    if (theme.value === "system") {
      document.documentElement.removeAttribute("data-theme");
      localStorage.removeItem(KEPT);
    } else {
      document.documentElement.dataset.theme = theme.value;
      localStorage.setItem(KEPT, theme.value);
    }
  });
}
