// Light or dark is what the host painted behind us, whatever it calls its theme.

export function watchTheme(root: HTMLElement): () => void {
  const apply = (): void => {
    const theme = isDark(root) ? "dark" : "light";
    if (root.getAttribute("data-theme") !== theme) root.setAttribute("data-theme", theme);
  };
  const observer = new MutationObserver(() => requestAnimationFrame(apply));
  const watched = { attributes: true, attributeFilter: ["class", "style", "theme", "data-jp-theme-light", "data-vscode-theme-kind"] };
  observer.observe(document.documentElement, watched);
  observer.observe(document.body, watched);
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", apply);
  apply();
  // The element may not be in the page yet when it is first drawn.
  const frame = requestAnimationFrame(apply);
  return () => {
    cancelAnimationFrame(frame);
    observer.disconnect();
    media.removeEventListener("change", apply);
  };
}

function isDark(root: HTMLElement): boolean {
  for (let node: HTMLElement | null = root.parentElement; node; node = node.parentElement) {
    const painted = luminance(getComputedStyle(node).backgroundColor);
    if (painted !== null) return painted < 0.4;
  }
  const jupyter = document.body.getAttribute("data-jp-theme-light");
  if (jupyter !== null) return jupyter === "false";
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function luminance(colour: string): number | null {
  const parts = colour.match(/[\d.]+/g)?.map(Number) ?? [];
  const [red, green, blue, alpha] = parts;
  if (red === undefined || green === undefined || blue === undefined || (alpha !== undefined && alpha < 0.5)) return null;
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
}
