/** Slots of keys, as Redis Cluster has them. */

export const SLOTS = 16384;

/** Runs of slots such as `0-5460,7000`. */
export function rangesOf(text: string): [number, number][] {
  return text
    .split(",")
    .filter((part) => part.trim() !== "")
    .map((part) => {
      const [from, to] = part.split("-").map(Number);
      return [from ?? 0, to ?? from ?? 0];
    });
}

/** CRC16 (XMODEM) of the key, or of what is between its first braces. */
export function slotOf(key: Uint8Array): number {
  const open = key.indexOf(0x7b);
  const close = open < 0 ? -1 : key.indexOf(0x7d, open + 1);
  const hashed = close > open + 1 ? key.subarray(open + 1, close) : key;
  let crc = 0;
  for (const byte of hashed) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++)
      crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : (crc << 1) & 0xffff;
  }
  return crc % SLOTS;
}
