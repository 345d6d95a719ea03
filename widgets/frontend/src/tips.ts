// Numbers on hover: whatever carries data-tip shows it beside the pointer. The same numbers are always text as well.
import { h, type Child } from "./dom";

export function withTips(...children: Child[]): HTMLElement {
  const tip = h("div", { class: "mkn-tip", "aria-hidden": "true", hidden: true });
  const holder = h("div", { class: "mkn-tips" }, children, tip);
  const hide = (): void => { tip.hidden = true; };
  holder.addEventListener("pointermove", (event) => {
    const found = (event.target as Element).closest<Element>("[data-tip]");
    if (!found) return hide();
    const box = holder.getBoundingClientRect();
    tip.textContent = found.getAttribute("data-tip");
    tip.hidden = false;
    const left = Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4);
    tip.style.transform = `translate(${Math.max(0, left)}px, ${event.clientY - box.top + 16}px)`;
  });
  holder.addEventListener("pointerleave", hide);
  return holder;
}
