// @peculiar/x509 finds its own parts by metadata.
// oxlint-disable-next-line import/no-unassigned-import
import "reflect-metadata";
import {
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  type X509Certificate,
  X509CertificateGenerator,
} from "@peculiar/x509";
import type { webcrypto } from "node:crypto";
import { isIP } from "node:net";

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const DAY_MS = 24 * 3600 * 1000;

/** A certificate and its private key, both PEM. */
export interface Identity {
  readonly cert: string;
  readonly key: string;
}

export interface Issued {
  /** Host names and addresses. Default: 127.0.0.1 and localhost. */
  readonly names?: readonly string[];
  /** Days from now; negative: in the past. Default: from -1 to 1. */
  readonly days?: readonly [from: number, to: number];
}

/** A certificate authority that lives as long as the test. */
export interface Authority {
  /** Its own certificate, PEM. */
  readonly ca: string;
  issue(options?: Issued): Promise<Identity>;
}

export async function createAuthority(name = "Test CA"): Promise<Authority> {
  const keys = await generateKeys();
  const root = await X509CertificateGenerator.createSelfSigned({
    name: `CN=${name}`,
    ...validity([-30, 30]),
    signingAlgorithm: ALGORITHM,
    keys,
    extensions: [
      new BasicConstraintsExtension(true, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
    ],
  });
  return { ca: root.toString("pem"), issue: (options = {}) => issue(root, keys.privateKey, options) };
}

async function issue(
  root: X509Certificate,
  signingKey: webcrypto.CryptoKey,
  { names = ["127.0.0.1", "localhost"], days = [-1, 1] }: Issued,
): Promise<Identity> {
  const keys = await generateKeys();
  const certificate = await X509CertificateGenerator.create({
    subject: "CN=test",
    issuer: root.subject,
    ...validity(days),
    signingAlgorithm: ALGORITHM,
    publicKey: keys.publicKey,
    signingKey,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new SubjectAlternativeNameExtension(
        names.map((value) => ({ type: isIP(value) === 0 ? "dns" : "ip", value })),
      ),
    ],
  });
  const key = await crypto.subtle.exportKey("pkcs8", keys.privateKey);
  return { cert: certificate.toString("pem"), key: PemConverter.encode(key, "PRIVATE KEY") };
}

function generateKeys(): Promise<webcrypto.CryptoKeyPair> {
  return crypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
}

function validity([from, to]: readonly [number, number]): { notBefore: Date; notAfter: Date } {
  const now = Date.now();
  return { notBefore: new Date(now + from * DAY_MS), notAfter: new Date(now + to * DAY_MS) };
}
