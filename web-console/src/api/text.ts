/** A string of any bytes, as the API shows it: bytes that are not UTF-8 come as base64. */
export type Text = string | { base64: string };

// A byte order mark is part of the text.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

export function bytesOf(text: Text): Uint8Array {
  if (typeof text === "string") return encoder.encode(text);
  return Uint8Array.from(atob(text.base64), (letter) => letter.charCodeAt(0));
}

export function textOf(bytes: Uint8Array): Text {
  try {
    return decoder.decode(bytes);
  } catch {
    return { base64: base64Of(bytes) };
  }
}

export function base64Of(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/** For people: text as it is, other bytes as `\xff`. */
export function shown(text: Text): string {
  if (typeof text === "string") return text;
  return escaped(bytesOf(text));
}

function escaped(bytes: Uint8Array): string {
  let out = "";
  for (const byte of bytes) {
    const plain = byte >= 0x20 && byte < 0x7f && byte !== 0x5c;
    out += plain ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`;
  }
  return out;
}

/** A name for maps and lists that is different for different bytes. */
export function idOf(text: Text): string {
  return typeof text === "string" ? `t${text}` : `b${text.base64}`;
}

/** What `\x00ff`-free hexadecimal digits spell, or null if they are none. */
export function fromHex(hex: string): Uint8Array | null {
  const digits = hex.replace(/\s+/g, "");
  if (digits.length % 2 !== 0 || /[^0-9a-f]/i.test(digits)) return null;
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** For addresses: special characters, and bytes that are not UTF-8, as `%ff`. */
export function percentEncoded(text: Text): string {
  if (typeof text === "string") return encodeURIComponent(text);
  return Array.from(bytesOf(text), (byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
}

/** What `percentEncoded` was given; null if a percent sign is not followed by two digits. */
export function percentDecoded(encoded: string): Text | null {
  if (/%(?![0-9a-f]{2})/i.test(encoded)) return null;
  const bytes = encoded.split(/(%[0-9a-f]{2})/i).flatMap((part, at) => {
    return at % 2 === 1 ? [Number.parseInt(part.slice(1), 16)] : [...encoder.encode(part)];
  });
  return textOf(Uint8Array.from(bytes));
}
