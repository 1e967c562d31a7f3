import { createHash } from "node:crypto";
import { z } from "zod";

const envName: z.ZodType<string> = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, { error: "must be the name of an environment variable" });

const sha256Digest: z.ZodType<string> = z.string().regex(/^[0-9a-fA-F]{64}$/, {
  error:
    "must be a SHA-256 digest of 64 hexadecimal digits; `iop token create NAME` makes a token and its line",
});

const notASecret = (issue: { readonly input?: unknown }): string | undefined =>
  issue.input === undefined
    ? undefined
    : "must be { env: NAME } or { sha256: … }; a secret itself never stands in this file";

/** Names a secret that this process must know in full. */
export const envReference: z.ZodType<EnvReference> = z.strictObject(
  { env: envName },
  {
    error: (issue) =>
      issue.code === "invalid_type" && issue.input !== undefined
        ? "must be { env: NAME }; a secret itself never stands in this file"
        : undefined,
  },
);

/** The keys of a `SecretReference`, for objects that hold them beside others; refine such an object with `hasOneSecret`. */
export const secretFields: {
  env: z.ZodOptional<z.ZodType<string>>;
  sha256: z.ZodOptional<z.ZodType<string>>;
} = { env: envName.optional(), sha256: sha256Digest.optional() };

/** Whether exactly one of the two ways is used. */
export function hasOneSecret(value: SecretReference): boolean {
  return (value.env === undefined) !== (value.sha256 === undefined);
}

/** What to say where `hasOneSecret` is false. */
export const ONE_SECRET = "must have either env or sha256";

/** Names a secret that this process only compares: by its digest, or by a variable that holds it. Exactly one. */
export const secretReference: z.ZodType<SecretReference> = z
  .strictObject(secretFields, {
    error: (issue) => (issue.code === "invalid_type" ? notASecret(issue) : undefined),
  })
  .refine(hasOneSecret, { error: ONE_SECRET });

export interface EnvReference {
  readonly env: string;
}

export interface SecretReference {
  readonly env?: string | undefined;
  readonly sha256?: string | undefined;
}

/** SHA-256 of a secret's UTF-8 text, in lower-case hexadecimal. */
export function sha256Hex(text: string): string {
  return createHash("sha256").update(text, "utf8").digest("hex");
}

/** The digest of what a reference names; undefined where its variable is not set or empty. */
export function digestOf(
  reference: SecretReference,
  env: Readonly<Record<string, string | undefined>>,
): string | undefined {
  if (reference.sha256 !== undefined) return reference.sha256.toLowerCase();
  const value = reference.env === undefined ? undefined : env[reference.env];
  return value === undefined || value === "" ? undefined : sha256Hex(value);
}
