package server

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"

	"github.com/kcplane/kcp/server/customresources"
)

func TestNoWebhookGetsTheCredentialsOfTheServer(t *testing.T) {
	loopback := &rest.Config{Host: "https://localhost", BearerToken: "secret"}
	c := &config{loopback: loopback, generic: &genericapiserver.Config{TracerProvider: tracing.NewNoopTracerProvider()}}
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
		if got, err := get(); err != nil || got.BearerToken != "" || got.Host == loopback.Host {
			t.Errorf("a webhook gets %v, %v", got, err)
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
