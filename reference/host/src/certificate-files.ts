import { X509Certificate, createPrivateKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { createSecureContext } from "node:tls";
import type { ConfigPath, ConfigReport } from "./config-problem.ts";

/** Where a configuration names files of certificates and keys. */
export interface CertificateFiles {
  /** What relative paths start from: the folder of the configuration file. */
  readonly folder: string;
  /** The object in the configuration whose keys name the files. */
  readonly path: ConfigPath;
  readonly report: ConfigReport;
}

/** A certificate with those that it depends on, and its private key; PEM. */
export interface IdentityPem {
  readonly cert: string;
  readonly key: string;
}

/**
 * Reads the files that the keys `cert` and `key` name: a certificate that is valid now, with its own key.
 * What is wrong goes into the report, and then there is no result. A missing name is the schema's to report.
 */
export function readIdentityFiles(
  names: { readonly cert?: string | undefined; readonly key?: string | undefined },
  files: CertificateFiles,
): IdentityPem | undefined {
  const certText = names.cert === undefined ? undefined : read(names.cert, "cert", files);
  const keyText = names.key === undefined ? undefined : read(names.key, "key", files);
  const certificate = certText === undefined ? undefined : checkCertificate(certText, files);
  const key = keyText === undefined ? undefined : checkKey(keyText, files);
  if (certText === undefined || keyText === undefined || certificate === undefined || key === undefined)
    return undefined;
  if (!certificate.checkPrivateKey(key)) {
    report(files, "key", "is not the private key of the certificate in cert");
    return undefined;
  }
  try {
    // What is left: other certificates in the file, algorithms and lengths that TLS does not take.
    createSecureContext({ cert: certText, key: keyText });
  } catch (error) {
    report(files, "cert", `cannot be used for TLS (${reasonOf(error)})`);
    return undefined;
  }
  return { cert: certText, key: keyText };
}

/** Reads the file that the key `ca` names: certificates of the authorities that are trusted. As `readIdentityFiles`. */
export function readAuthorityFile(name: string, files: CertificateFiles): string | undefined {
  const text = read(name, "ca", files);
  if (text === undefined) return undefined;
  const certificates = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  if (certificates.length > 0 && certificates.every((one) => parseCertificate(one) !== undefined))
    return text;
  report(files, "ca", "must be a PEM file of certificates");
  return undefined;
}

function read(name: string, key: string, files: CertificateFiles): string | undefined {
  try {
    return readFileSync(resolve(files.folder, name), "utf8");
  } catch (error) {
    const reason = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
    report(files, key, `cannot be read (${reason}); must be the path of a PEM file, relative to this one`);
    return undefined;
  }
}

function checkCertificate(text: string, files: CertificateFiles): X509Certificate | undefined {
  const certificate = parseCertificate(text);
  if (certificate === undefined) {
    report(files, "cert", "must be a PEM file that starts with a certificate");
    return undefined;
  }
  const now = new Date();
  if (now > certificate.validToDate)
    report(files, "cert", `has expired on ${certificate.validToDate.toISOString()}`);
  else if (now < certificate.validFromDate)
    report(files, "cert", `is not valid before ${certificate.validFromDate.toISOString()}`);
  return certificate;
}

function parseCertificate(text: string): X509Certificate | undefined {
  try {
    return new X509Certificate(text);
  } catch {
    return undefined;
  }
}

function checkKey(text: string, files: CertificateFiles): ReturnType<typeof createPrivateKey> | undefined {
  try {
    return createPrivateKey(text);
  } catch {
    report(files, "key", "must be a PEM file of a private key without a passphrase");
    return undefined;
  }
}

function report(files: CertificateFiles, key: string, message: string): void {
  files.report.error([...files.path, key], message);
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "reason" in error && typeof error.reason === "string" ? error.reason : error.message;
}
