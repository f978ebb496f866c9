/** Bytes as text, and hashes of them. */

import { require } from "../refusal.js";

export type Bytes = Uint8Array<ArrayBuffer>;

const encoder = new TextEncoder();

export function utf8(text: string): Bytes {
  return encoder.encode(text);
}

/** Write bytes in base64 for addresses, with padding. */
export function toBase64(bytes: Uint8Array): string {
  let letters = "";
  for (let at = 0; at < bytes.length; at += 4096) letters += String.fromCharCode(...bytes.subarray(at, at + 4096));
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_");
}

/** Read base64, with padding and nothing else in it. */
export function fromBase64(text: string): Bytes {
  require(/^[A-Za-z0-9+/_-]*={0,2}$/.test(text) && text.length % 4 === 0, "the text is not base64");
  const letters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
}

/** Write bytes in base32, small letters, without padding. */
export function toBase32(bytes: Uint8Array): string {
  let [text, buffer, bits] = ["", 0, 0];
  for (const byte of bytes) {
    buffer = (buffer << 8) | byte;
    for (bits += 8; bits >= 5; bits -= 5) text += "abcdefghijklmnopqrstuvwxyz234567"[(buffer >> (bits - 5)) & 31];
    buffer &= (1 << bits) - 1;
  }
  return bits ? text + "abcdefghijklmnopqrstuvwxyz234567"[(buffer << (5 - bits)) & 31] : text;
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Bytes {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function joined(...parts: Uint8Array[]): Bytes {
  const made = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    made.set(part, at);
    at += part.length;
  }
  return made;
}

export async function sha256(bytes: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}
