/** Envoy's configuration: a key, a local limit, and the transcoder before the plain service. */
const google = "type.googleapis.com/envoy.extensions";
const filter = (name: string, type: string, settings: object) => ({
  name,
  typed_config: { "@type": `${google}.filters.http.${type}`, ...settings },
});
const socket = (address: string) => {
  const [host, port] = address.split(":");
  return { socket_address: { address: host, port_value: Number(port) } };
};

/** @param limit requests a second, for all callers together */
export function envoyConfig(listen: string, service: string, descriptors: string, key: string, limit: number): object {
  const http_filters = [
    filter("key", "api_key_auth.v3.ApiKeyAuth", {
      credentials: [{ key, client: "bench" }],
      key_sources: [{ header: "authorization" }],
    }),
    filter("limit", "local_ratelimit.v3.LocalRateLimit", {
      stat_prefix: "limit",
      token_bucket: { max_tokens: limit, tokens_per_fill: limit, fill_interval: "1s" },
      filter_enabled: { default_value: { numerator: 100 } },
      filter_enforced: { default_value: { numerator: 100 } },
    }),
    filter("transcoder", "grpc_json_transcoder.v3.GrpcJsonTranscoder", {
      proto_descriptor: descriptors,
      services: ["plain.Inventory"],
    }),
    filter("router", "router.v3.Router", { suppress_envoy_headers: true }),
  ];
  const routes = [{ match: { prefix: "/" }, route: { cluster: "service", timeout: "60s" } }];
  const manager = {
    "@type": `${google}.filters.network.http_connection_manager.v3.HttpConnectionManager`,
    stat_prefix: "http",
    route_config: { virtual_hosts: [{ name: "all", domains: ["*"], routes }] },
    http_filters,
  };
  const bufferBytes = 64 * 1024 * 1024; // the transcoder holds the whole list
  return {
    static_resources: {
      listeners: [
        {
          name: "http",
          address: socket(listen),
          per_connection_buffer_limit_bytes: bufferBytes,
          filter_chains: [{ filters: [{ name: "http", typed_config: manager }] }],
        },
      ],
      clusters: [
        {
          name: "service",
          per_connection_buffer_limit_bytes: bufferBytes,
          typed_extension_protocol_options: {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
              "@type": `${google}.upstreams.http.v3.HttpProtocolOptions`,
              explicit_http_config: { http2_protocol_options: {} },
            },
          },
          load_assignment: {
            cluster_name: "service",
            endpoints: [{ lb_endpoints: [{ endpoint: { address: socket(service) } }] }],
          },
        },
      ],
    },
  };
}
