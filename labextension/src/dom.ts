/** Small helpers for plain elements. Text always goes in as text. */

export function element(tag: string, className: string, text = ''): HTMLElement {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

export function button(label: string, click: () => void, className = '', name = ''): HTMLButtonElement {
  const made = document.createElement('button');
  made.type = 'button';
  made.className = `mkl-button ${className}`.trim();
  made.textContent = label;
  if (name !== '') {
    made.setAttribute('aria-label', name);
  }
  made.addEventListener('click', click);
  return made;
}

export function labelled(text: string, field: HTMLElement): HTMLElement {
  const label = element('label', 'mkl-label');
  label.append(element('span', '', text), field);
  return label;
}
