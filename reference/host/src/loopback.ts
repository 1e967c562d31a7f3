import { BlockList, isIP } from "node:net";

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8, "ipv4");
loopback.addAddress("::1", "ipv6");

/** Whether a host name or address can only be reached from this machine. Names other than `localhost` count as reachable. */
export function isLoopbackHost(host: string): boolean {
  const bare = host.startsWith("[") && host.endsWith("]") ? host.slice(1, -1) : host;
  if (bare.toLowerCase() === "localhost") return true;
  switch (isIP(bare)) {
    case 4:
      return loopback.check(bare, "ipv4");
    case 6:
      // Covers IPv4 addresses mapped into IPv6, too.
      return loopback.check(bare, "ipv6");
    default:
      return false;
  }
}

/** `host:port`, with an IPv6 address in brackets. */
export function hostPort(host: string, port: number): string {
  return isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
}
