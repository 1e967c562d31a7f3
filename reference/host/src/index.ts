export { checkConfig, loadConfigFile } from "./config-file.ts";
export type { ConfigFormat, LoadedConfig } from "./config-file.ts";
export { parseConfigDocument, readConfigDocument } from "./config-document.ts";
export type { ConfigDocument } from "./config-document.ts";
export { ConfigError, formatPath, formatProblems } from "./config-problem.ts";
export type { ConfigPath, ConfigProblem, ConfigReport } from "./config-problem.ts";
export { BoundedLabel, OTHER } from "./bounded-label.ts";
export { ExitCode } from "./exit-code.ts";
export { readAuthorityFile, readIdentityFiles } from "./certificate-files.ts";
export type { CertificateFiles, IdentityPem } from "./certificate-files.ts";
export { parseCommandLine } from "./command-line.ts";
export { runHost, runProcess } from "./host-process.ts";
export type { HostContext, HostProgram, ReloadableContext } from "./host-process.ts";
export { listenHttp } from "./http-listener.ts";
export type { HttpListener } from "./http-listener.ts";
export { createLog } from "./log.ts";
export type { Log } from "./log.ts";
export { hostPort, isLoopbackHost } from "./loopback.ts";
export { addProcessMetrics } from "./process-metrics.ts";
export { parseReadyLine, printReadyLine } from "./ready-line.ts";
export {
  ONE_SECRET,
  digestOf,
  envReference,
  hasOneSecret,
  secretFields,
  secretReference,
  sha256Hex,
} from "./secret-reference.ts";
export type { EnvReference, SecretReference } from "./secret-reference.ts";
export { watchShutdown, whenAborted } from "./shutdown.ts";
export type { Shutdown } from "./shutdown.ts";
export { nearest } from "./spelling.ts";
