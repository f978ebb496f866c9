/** Rows from a file or from the clipboard: CSV with a header, as a Python device reads it. The whole is read first. */

import { Refusal, type Device } from "../core/index.js";
import type { Collector, Surroundings } from "./collecting.js";
import { button, counted, h, small } from "./dom.js";

const LARGEST = 20e6;
const FIELD = /\s*(?:"((?:[^"]|"")*)"|([^,\r\n]*))\s*(,|\r?\n|$)/gy;

export interface Row {
  readonly row: number[];
  readonly label: string | number;
}

function refuse(why: string): never {
  throw new Refusal("bad-row", why);
}

/** Cut a text into lines of fields, each with its number. */
function lines(text: string): { number: number; fields: string[] }[] {
  const made: { number: number; fields: string[] }[] = [];
  let fields: string[] = [];
  let number = 1;
  FIELD.lastIndex = 0;
  while (FIELD.lastIndex < text.length) {
    const found = FIELD.exec(text);
    if (!found) refuse(`line ${number} is not written as CSV`);
    fields.push((found[1]?.replaceAll('""', '"') ?? found[2]!).trim());
    if (found[3] === ",") continue;
    if (fields.some((field) => field)) made.push({ number, fields });
    fields = [];
    number++;
  }
  return made;
}

/** The column of the targets: the one that the task names, or that of the target. */
const columnOf = (data: Device["task"]["definition"]["data"]): string =>
  data["label-column"] ?? data.target?.name ?? "label";

/** Read a file's text into rows, or say where it is not what the task asks for. */
export function readRows(text: string, data: Device["task"]["definition"]["data"]): Row[] {
  const [header, ...rest] = lines(text.replace(/^\ufeff/, ""));
  const target = columnOf(data);
  if (!header) refuse("there are no rows: a line that names the columns, then one for each row");
  const places = (name: string): number => {
    const at = header.fields.indexOf(name);
    if (at < 0) refuse(`line 1: no column is called ${name}; there are: ${header.fields.slice(0, 8).join(", ")}`);
    return at;
  };
  const label = places(target);
  const others = header.fields.map((_, at) => at).filter((at) => at !== label);
  const features = data.columns?.length ? data.columns.map(places) : others;
  if (features.length !== data.features || others.length !== data.features) {
    refuse(`line 1: ${others.length} columns beside ${target}, but a row of this task has ${data.features}`);
  }
  return rest.map(({ number, fields }) => {
    if (fields.length !== header.fields.length)
      refuse(`line ${number}: ${fields.length} fields, not ${header.fields.length}`);
    const value = (at: number): number => {
      const read = fields[at] ? Number(fields[at]) : NaN;
      if (!Number.isFinite(Math.fround(read)))
        refuse(`line ${number}, ${header.fields[at]}: "${fields[at]}" is not a number`);
      return read;
    };
    return { row: features.map(value), label: data.target ? value(label) : fields[label]! };
  });
}

export class RowsFile implements Collector {
  readonly streams = false;
  readonly noun = "row";
  readonly view: HTMLElement;
  onrow = (): void => undefined;
  private readonly said = h("p", { className: "small", role: "status" });
  private readonly text = h("textarea", { rows: 5, id: "pasted", spellcheck: false });

  constructor(private readonly around: Surroundings) {
    const { columns, features } = this.data;
    const names = [...(columns ?? [`${features} numbers`]), columnOf(this.data)].join(", ");
    const file = h("input", {
      type: "file",
      id: "file",
      accept: ".csv,text/csv",
      onchange: () => void this.open(file),
    });
    this.view = h(
      "div",
      {},
      small(`Rows as CSV. The first line names the columns: ${names}. They stay in this browser.`),
      h("div", { className: "field" }, h("label", { htmlFor: "file" }, "A file"), file),
      h("div", { className: "field" }, h("label", { htmlFor: "pasted" }, "Or paste rows"), this.text),
      button("Keep these rows", () => void this.take(this.text.value), "plain"),
      this.said,
    );
  }

  async begin(): Promise<void> {
    this.around.stands("ready");
  }

  end(): void {
    this.said.textContent = "";
  }

  private get data(): Device["task"]["definition"]["data"] {
    return this.around.device.task.definition.data;
  }

  private async open(input: HTMLInputElement): Promise<void> {
    const file = input.files?.[0];
    if (!file) return;
    if (file.size > LARGEST) this.said.textContent = "The file is larger than 20 MB: split it.";
    else await this.take(await file.text());
  }

  private wrong(error: unknown): void {
    this.said.className = "error";
    this.said.textContent = (error as Error).message;
  }

  private async take(text: string): Promise<void> {
    this.said.className = "small";
    try {
      const rows = readRows(text, this.data);
      if (await this.around.device.areDoubtful(rows)) this.ask(rows);
      else await this.keep(rows);
    } catch (error) {
      this.wrong(error);
    }
  }

  /** Have the owner say that rows are other samples than those used before, and not the same written differently. */
  private ask(rows: readonly Row[]): void {
    this.said.replaceChildren(
      "Most of these rows are new, and rows that were used are not among them. If they are the same samples written differently (one more digit, another unit), they would be used more often than you were promised: leave them. ",
      button("They are other samples", () => void this.keep(rows), "plain"),
      button("Leave them", () => this.said.replaceChildren("Nothing was kept."), "plain"),
    );
  }

  private async keep(rows: readonly Row[]): Promise<void> {
    try {
      for (const [at, { row, label }] of rows.entries()) {
        await this.around.keep(row, label);
        if (at % 20 === 0) this.said.textContent = `${at + 1} of ${rows.length}`;
      }
      this.said.textContent = `${counted(rows.length, "row")} read.`;
      this.text.value = "";
    } catch (error) {
      this.wrong(error);
    }
  }
}
