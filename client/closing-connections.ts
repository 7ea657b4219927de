/** Lets calls finish on a connection that takes no new ones. */
import type { Socket } from "node:net";
import { Http2SubchannelConnector } from "@grpc/grpc-js/build/src/transport.js";

/** Silence after which the kernel asks the other end, once a second and up to ten times, whether it is still there. */
const keepAliveMs = 10_000;

/** What this file uses of grpc-js's own classes, which declare it private. */
interface Connector {
  tcpConnect?: (...args: unknown[]) => Promise<Socket>;
}
interface Transport {
  readonly session: { readonly closed: boolean };
  canSendPing?: () => boolean;
}

// A connection closes at its maximum age, when its server stops or its address leaves DNS. The calls on it go on,
// but Node sends no ping there, which grpc-js takes for a dead connection: it ends those calls. An update among them
// would have an unknown outcome. https://github.com/grpc/grpc-node/issues/3068
const { connect } = Http2SubchannelConnector.prototype;
Http2SubchannelConnector.prototype.connect = async function (...args) {
  const opened = await connect.apply(this, args);
  const transport = opened as unknown as Transport;
  const canSendPing = transport.canSendPing?.bind(opened);
  if (canSendPing) transport.canSendPing = () => !transport.session.closed && canSendPing();
  return opened;
};

// In place of those pings, the kernel finds out that the other end is gone: a watch has no deadline.
const connector = Http2SubchannelConnector.prototype as unknown as Connector;
const { tcpConnect } = connector;
if (tcpConnect) {
  connector.tcpConnect = async function (...args) {
    const socket = await tcpConnect.apply(this, args);
    return socket.setKeepAlive(true, keepAliveMs);
  };
}
