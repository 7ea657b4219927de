import { startHaproxy } from "./haproxy.ts";
import { freePort } from "./ports.ts";

/** The ports on 127.0.0.1 that are reserved for one replica at a time. */
export interface Slot {
  readonly listenPort: number;
  readonly adminPort: number;
}

export interface Balancer {
  /** Public address, `host:port`. */
  readonly address: string;
  /** Whether it sends requests to the replica in a slot. */
  uses(slot: Slot): Promise<boolean>;
  stop(): Promise<void>;
}

/**
 * Starts HAProxy in front of gateways. Like Kubernetes it follows their readiness: it asks every 200 ms, and takes a
 * replica out after two failures. It hides no fault: it retries nothing, and sends any request over a used connection.
 */
export async function startBalancer(slots: readonly Slot[]): Promise<Balancer> {
  const port = await freePort();
  const name = ({ listenPort }: Slot) => `gateway-${listenPort}`;
  const { uses, stop } = await startHaproxy(`
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  retries 0
frontend public
  bind 127.0.0.1:${port}
  default_backend gateways
backend gateways
  balance roundrobin
  http-reuse always
  option httpchk GET /readyz
  default-server check inter 200ms fall 2 rise 1
${slots.map((slot) => `  server ${name(slot)} 127.0.0.1:${slot.listenPort} port ${slot.adminPort}`).join("\n")}
`);
  return { address: `127.0.0.1:${port}`, uses: (slot) => uses(name(slot)), stop };
}
