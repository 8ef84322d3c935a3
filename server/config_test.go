package server

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"

	"github.com/kcplane/kcp/server/customresources"
	"github.com/kcplane/kcp/server/outbound"
)

func TestNoWebhookGetsCredentialsOrLeadsTheServerToItself(t *testing.T) {
	loopback := &rest.Config{Host: "https://localhost", BearerToken: "secret"}
	networks, err := outbound.NewNetworks([]string{outbound.Public})
	if err != nil {
		t.Fatal(err)
	}
	c := &config{loopback: loopback, networks: networks, generic: &genericapiserver.Config{TracerProvider: tracing.NewNoopTracerProvider()}}
	none, err := webhook.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		t.Fatal(err)
	}
	resolver := c.toWebhooks()(none)
	for _, get := range []func() (*rest.Config, error){
		func() (*rest.Config, error) { return resolver.ClientConfigFor("kubernetes.default.svc:443") },
		func() (*rest.Config, error) { return resolver.ClientConfigFor("hooks.example.org:443") },
		func() (*rest.Config, error) { return resolver.ClientConfigForService("kubernetes", "default", 443) },
	} {
		got, err := get()
		if err != nil || got.BearerToken != "" || got.Host == loopback.Host {
			t.Fatalf("a webhook gets %v, %v", got, err)
		}
		if _, err := got.Dial(t.Context(), "tcp", "127.0.0.1:443"); err == nil || !strings.Contains(err.Error(), "does not call") {
			t.Errorf("it leads the server to itself: %v", err)
		}
	}
}

func TestNothingBuiltInIsServedByAView(t *testing.T) {
	c := &config{builtin: sets.New(schema.GroupResource{Resource: "secrets"})}
	for _, test := range []struct {
		resource       string
		inView, custom bool
	}{
		{"secrets", false, false}, {"secrets", true, true}, {"widgets", false, true}, {"widgets", true, true},
	} {
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Resource: test.resource})
		if test.inView {
			ctx = customresources.WithView(ctx, customresources.ViewOf("provider", "export"))
		}
		if got := c.isCustom(ctx); got != test.custom {
			t.Errorf("%+v: got %t", test, got)
		}
	}
}
