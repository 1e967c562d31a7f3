import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const TICKS_PER_SECOND = Number(execFileSync("getconf", ["CLK_TCK"]).toString());

/** User and system CPU time of the processes together, in seconds. */
export function cpuSeconds(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    // Fields 14 and 15, counted after the command's closing bracket (proc(5)).
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
    return sum + (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  }, 0);
}

/** Resident memory of the processes together, in bytes. */
export function residentBytes(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const kilobytes = /VmRSS:\s+(\d+)/u.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
    return sum + Number(kilobytes) * 1024;
  }, 0);
}

/** How many files a process may have open. */
export function openFilesLimit(): number {
  return Number(/Max open files\s+(\d+)/u.exec(readFileSync("/proc/self/limits", "utf8"))?.[1]);
}
