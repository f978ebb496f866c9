/** Rows from a file: columns are found where the task says, and what does not fit is named with its line. */

import { describe, expect, it } from "vitest";

import { readRows } from "../app/rows-file.js";

type Data = Parameters<typeof readRows>[1];

const data: Data = { features: 2, columns: ["x", "y"], labels: ["no", "yes"], transform: [] };

describe("a file of rows", () => {
  it.each<[string, Partial<Data>, string]>([
    ["label", {}, "y,label,x\r\n2,yes,1\r\n"],
    ["the column that the task names", { "label-column": "kind" }, "\ufeffkind,x,y\nyes,1,2\n\n"],
    ["quotes", { "label-column": "a kind" }, '"a kind",x,y\n"yes", 1 ,"2"\n'],
  ])("has its labels in %s", (_, more, text) => {
    expect(readRows(text, { ...data, ...more })).toEqual([{ row: [1, 2], label: "yes" }]);
  });

  it("has a number in the column of its name", () => {
    const target = { name: "heat", low: 0, high: 9, unit: "", bins: 10 };
    expect(readRows("x,y,heat\n1,2,3\n", { ...data, labels: [], target })).toEqual([{ row: [1, 2], label: 3 }]);
  });

  it.each([
    ["x,y,label\n1,2,yes\n", "line 1: no column is called kind"],
    ["x,y,kind\n1,,yes\n", 'line 2, y: "" is not a number'],
    ["x,y,kind\n1,yes\n", "line 2: 2 fields, not 3"],
  ])("is refused with the place of a mistake", (text, why) => {
    expect(() => readRows(text, { ...data, "label-column": "kind" })).toThrowError(why);
  });
});
