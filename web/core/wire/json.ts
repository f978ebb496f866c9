/**
 * JSON as Python's reader takes it: whole numbers are told from others, which a browser's own reader does not do.
 *
 * Whole numbers come as `bigint`, all others as `number`; `plain` turns the former into the latter once their kind does
 * not matter any more. Objects have no prototype, so that no name means anything special.
 */

import { require } from "../refusal.js";

export type Json = null | boolean | string | bigint | number | Json[] | JsonObject;
export interface JsonObject {
  [name: string]: Json;
}
export type Plain = null | boolean | string | number | Plain[] | PlainObject;
export interface PlainObject {
  [name: string]: Plain;
}

const DEEPEST = 400;
const TOKEN =
  /[ \t\n\r]*(?:([[\]{},:])|("(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*")|(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?|(null|true|false|NaN|-?Infinity))/y;
const NAMES: Record<string, Json> = { null: null, true: true, false: false, NaN, Infinity, "-Infinity": -Infinity };

/** Read a text, or refuse it. */
export function parseJson(text: string): Json {
  let at = 0;
  let depth = 0;
  const next = (): RegExpExecArray => {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    require(found, `the text is no JSON at ${at}`);
    at = TOKEN.lastIndex;
    return found;
  };
  const value = (token: RegExpExecArray): Json => {
    const [, mark, quoted, whole, fraction, exponent, name] = token;
    if (quoted !== undefined) return JSON.parse(quoted) as string;
    if (name !== undefined) return NAMES[name]!;
    if (whole !== undefined) return fraction || exponent ? Number(token[0]) : BigInt(whole);
    require((mark === "[" || mark === "{") && ++depth < DEEPEST, `the text is no JSON at ${at}`);
    const made = mark === "[" ? list() : object();
    depth--;
    return made;
  };
  const list = (): Json[] => {
    const made: Json[] = [];
    let token = next();
    if (token[1] === "]") return made;
    for (;;) {
      made.push(value(token));
      const mark = next()[1];
      if (mark === "]") return made;
      require(mark === ",", `the text is no JSON at ${at}`);
      token = next();
    }
  };
  const object = (): JsonObject => {
    const made = Object.create(null) as JsonObject;
    let token = next();
    if (token[1] === "}") return made;
    for (;;) {
      require(token[2] !== undefined && next()[1] === ":", `the text is no JSON at ${at}`);
      made[JSON.parse(token[2]) as string] = value(next());
      const mark = next()[1];
      if (mark === "}") return made;
      require(mark === ",", `the text is no JSON at ${at}`);
      token = next();
    }
  };
  const made = value(next());
  require(/^[ \t\n\r]*$/.test(text.slice(at)), `the text is no JSON at ${at}`);
  return made;
}

/** Turn whole numbers into plain ones. */
export function plain(value: Json): Plain {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(plain);
  if (!isObject(value)) return value;
  const made = Object.create(null) as PlainObject;
  for (const name of Object.keys(value)) made[name] = plain(value[name]!);
  return made;
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
