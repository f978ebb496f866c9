/** Elements of a page, made by calls; texts are never read as HTML. */

type Child = Node | string | false | null | undefined;

/** Make an element; names that begin with "on" are events, the others properties or attributes. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  more: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(more)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value as EventListener);
    else if (name in made) (made as unknown as Record<string, unknown>)[name] = value;
    else made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child): child is Node | string => !!child));
  return made;
}

export function button(words: string, press: () => unknown, className = ""): HTMLButtonElement {
  return h("button", { type: "button", className, onclick: press }, words);
}

export function small(...children: Child[]): HTMLElement {
  return h("p", { className: "small" }, ...children);
}

/** Fold something away behind a few words. */
export function folded(summary: string, ...children: Child[]): HTMLDetailsElement {
  return h("details", {}, h("summary", {}, summary), ...children);
}

/** Fold something away that is made when it is opened first. */
export function foldedLater(summary: string, make: () => Promise<Child>): HTMLDetailsElement {
  const made = folded(summary);
  const open = (): void => {
    made.removeEventListener("toggle", open);
    void make()
      .catch((error: unknown) => small(String((error as Error).message)))
      .then((child) => child && made.append(child));
  };
  made.addEventListener("toggle", open);
  return made;
}

export function counted(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** A hundred dots, so many of them filled: odds that one can see. */
export function dots(filled: number): SVGElement {
  const space = "http://www.w3.org/2000/svg";
  const drawn = (name: string, more: Record<string, unknown>): SVGElement => {
    const made = document.createElementNS(space, name) as SVGElement;
    for (const each in more) made.setAttribute(each, String(more[each]));
    return made;
  };
  const said = `${filled} of 100 dots are filled`;
  const picture = drawn("svg", { viewBox: "0 0 100 100", class: "odds", role: "img", "aria-label": said });
  for (let at = 0; at < 100; at++) {
    const kind = at < 50 ? "coin" : at < filled ? "more" : "rest";
    const column = at % 10;
    picture.append(drawn("circle", { cx: 5 + 10 * column, cy: 5 + at - column, r: 3.6, class: kind }));
  }
  return picture;
}
