// A transcoder by vanguard-go before the plain service, on one processor. No keys, no limits.
package main

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"connectrpc.com/vanguard"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// Arguments: the descriptors, the service's address, the address to listen at.
func main() {
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(must(os.ReadFile(os.Args[1])), set); err != nil {
		log.Fatal(err)
	}
	files := must(protodesc.NewFiles(set))
	schema := must(files.FindDescriptorByName("plain.Inventory")).(protoreflect.ServiceDescriptor)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: os.Args[2]})
	proxy.FlushInterval = -1
	proxy.Transport = &http2.Transport{
		AllowHTTP: true,
		DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	service := vanguard.NewServiceWithSchema(schema, proxy,
		vanguard.WithTargetProtocols(vanguard.ProtocolGRPC), vanguard.WithTargetCodecs(vanguard.CodecProto))
	log.Fatal(http.ListenAndServe(os.Args[3], must(vanguard.NewTranscoder([]*vanguard.Service{service}))))
}
