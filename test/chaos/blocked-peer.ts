// A session whose process blocks for 6.5 s, longer than the heartbeat's wait, in the turn in which it reads.
// Prints `alive` once it has outlived that, or the error that ended the session.
import { realClock, Session } from "@iop/wire";
import { tcp } from "@iop/wire/tcp";

const connection = await tcp({ host: "127.0.0.1", port: Number(process.argv[2]) }).dial({
  signal: AbortSignal.timeout(5_000),
});
const session = new Session({
  connection,
  role: "node",
  clock: realClock,
  maxFrameBytes: 65_536,
  handlers: {
    message: () => {},
    closed: (error) => finish(error.code),
  },
});

setImmediate(() => {
  const end = performance.now() + 6_500;
  while (performance.now() < end);
  process.stdout.write("blocked\n");
  setTimeout(() => finish(session.error?.code ?? "alive"), 3_000);
});

function finish(word: string): void {
  process.stdout.write(`${word}\n`);
  process.exit(0);
}
