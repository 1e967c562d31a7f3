import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import {
  checkServerIdentity,
  connect,
  createSecureContext,
  createServer,
  type SecureContextOptions,
  type TLSSocket,
} from "node:tls";

import { type HandshakeFailure, PendingHandshakes } from "./pending-handshakes.ts";
import { hostPort, SocketConnection } from "./socket-connection.ts";
import { dialSocket } from "./socket-dial.ts";
import { listenOnSocket } from "./socket-listener.ts";
import type { Connection, Listener, Transport } from "./transport.ts";
import { WireError } from "./wire-error.ts";

export type { HandshakeFailure } from "./pending-handshakes.ts";

export interface TlsOptions {
  /** Host to dial, or address to listen on. */
  readonly host: string;
  /** 0 picks a free port when listening. */
  readonly port: number;
  /** What the listening end shows: its certificate, then the ones between it and the authority; PEM. Needed to listen. */
  readonly cert?: string | undefined;
  /** Private key of `cert`, PEM, not encrypted. Needed to listen. */
  readonly key?: string | undefined;
  /** Certificates of the authorities that the dialling end trusts, and of no others; PEM. Needed to dial. */
  readonly ca?: string | undefined;
  /** Host name or address that the dialled certificate must be for. Default: `host`. */
  readonly serverName?: string | undefined;
  /** Told by the listening end of each connection whose handshake came to nothing. */
  readonly onError?: ((failure: HandshakeFailure) => void) | undefined;
}

/** How long a peer of the listening end may take for its handshake, in milliseconds; as long as for its registration after it. */
const HANDSHAKE_MS = 10_000;
/** Handshakes that may be under way at a listening end: a thousand Nodes that come back at once, at some 50 KiB each. */
const MAX_HANDSHAKES = 1024;

/**
 * TCP with TLS 1.3: the listening end shows a certificate, the dialling end checks it. The dialling end shows
 * none: who it is, its registration says.
 * @throws WireError `invalid_argument` for a certificate or key that cannot be used, or that do not belong together.
 */
export function tls(options: TlsOptions): Transport {
  const { ca, cert, key } = options;
  const identity = cert === undefined && key === undefined ? undefined : readIdentity(cert, key);
  const trust = ca === undefined ? undefined : readTrust(ca);
  return {
    dial: ({ signal }) => dial(options, trust, signal),
    listen: ({ accept }) => listen(options, identity, accept),
  };
}

async function dial(
  { host, port, serverName = host }: TlsOptions,
  trust: SecureContextOptions | undefined,
  signal: AbortSignal,
): Promise<Connection> {
  if (trust === undefined) throw new WireError("invalid_argument", "tls: dialling needs ca");
  const where = hostPort(host, port);
  return await dialSocket<TLSSocket>({
    connect: () =>
      connect({
        host,
        port,
        ...trust,
        // An address is not sent as a name (RFC 6066, 3), but checked all the same.
        servername: isIP(serverName) === 0 ? serverName : "",
        checkServerIdentity: (_, certificate) => checkServerIdentity(serverName, certificate),
      }),
    event: "secureConnect",
    failure: (error, socket) => {
      // The type says that it is there; it is null before a certificate has been refused.
      const refused: unknown = socket.authorizationError;
      return refused === null || refused === undefined
        ? new WireError("dial_failed", `${where}: ${reasonOf(error)}`, { cause: error })
        : new WireError("certificate_rejected", `${where}: ${refusalOf(error, serverName)}`, {
            cause: error,
          });
    },
    signal,
  });
}

async function listen(
  { host, port, onError = () => {} }: TlsOptions,
  identity: SecureContextOptions | undefined,
  accept: (connection: Connection) => void,
): Promise<Listener> {
  if (identity === undefined) throw new WireError("invalid_argument", "tls: listening needs cert and key");
  const handshakes = new PendingHandshakes({ deadlineMs: HANDSHAKE_MS, max: MAX_HANDSHAKES, onError });
  const server = createServer(identity);
  server.on("connection", (socket) => handshakes.begin(socket));
  server.on("tlsClientError", (error, socket) => handshakes.failed(socket, reasonOf(error)));
  server.on("secureConnection", (socket) => {
    if (handshakes.done(socket)) accept(new SocketConnection(socket));
    else socket.destroy();
  });
  return await listenOnSocket({ server, host, port, closed: () => handshakes.close() });
}

function readIdentity(cert: string | undefined, key: string | undefined): SecureContextOptions {
  if (cert === undefined || key === undefined)
    throw new WireError("invalid_argument", "tls: cert and key come together");
  return usable({ minVersion: "TLSv1.3", cert, key }, "cert and key");
}

function readTrust(ca: string): SecureContextOptions {
  // What is no certificate would be skipped, and an authority silently missing.
  const certificates = ca.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  if (certificates.length === 0) throw new WireError("invalid_argument", "tls: ca holds no certificate");
  try {
    for (const certificate of certificates) void new X509Certificate(certificate);
  } catch (error) {
    throw new WireError("invalid_argument", "tls: ca holds a certificate that cannot be read", {
      cause: error,
    });
  }
  return usable({ minVersion: "TLSv1.3", ca: certificates }, "ca");
}

function usable(options: SecureContextOptions, what: string): SecureContextOptions {
  try {
    createSecureContext(options);
    return options;
  } catch (error) {
    throw new WireError("invalid_argument", `tls: ${what} cannot be used: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}

/** OpenSSL's messages are full of file names; it gives the gist apart. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "reason" in error && typeof error.reason === "string" ? `TLS: ${error.reason}` : error.message;
}

function refusalOf(error: Error, serverName: string): string {
  const code = "code" in error ? String(error.code) : error.message;
  switch (code) {
    case "CERT_HAS_EXPIRED":
      return "the certificate, or one that it depends on, has expired";
    case "CERT_NOT_YET_VALID":
      return "the certificate, or one that it depends on, is not valid yet";
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return `the certificate is not for ${serverName} (${reasonOf(error)})`;
    default:
      return `the certificate is not trusted (${code})`;
  }
}
