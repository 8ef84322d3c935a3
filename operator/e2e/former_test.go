package e2e

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// warnings collects the warnings of an API server.
type warnings struct {
	mutex sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.texts = append(w.texts, text)
}

// D25, D26: manifests of earlier operators have empty values and fields that no longer exist, or never did. They are accepted; a field that
// does not exist is a warning, as with kubectl.
func TestTrapsInFormerManifestsAreAccepted(t *testing.T) {
	for name, test := range map[string]struct {
		manifest, warning string
	}{
		"an empty address": {manifest: `
kind: FrontProxy
spec: {rootShard: {ref: {name: kcp}}, external: {hostname: "", port: 0}}`},
		"an empty address beside the deprecated one": {manifest: `
kind: FrontProxy
spec: {rootShard: {ref: {name: kcp}}, external: {hostname: "", port: 0}, externalHostname: kcp.example.com}`},
		"no issuer": {manifest: `
kind: RootShard
spec: {external: {hostname: kcp.example.com, port: 443}, certificates: {issuerRef: null}, cache: {}, etcd: {endpoints: ["http://etcd:2379"]}}`},
		"no issuer of a cache server": {manifest: `
kind: CacheServer
spec: {certificates: {issuerRef: null}}`},
		"no issuer in a template": {manifest: `
kind: Shard
spec: {rootShard: {ref: {name: kcp}}, etcd: {endpoints: ["http://etcd:2379"]}, certificateTemplates: {server: {spec: {issuerRef: null}}}}`},
		"a file that upstream documents and does not mount": {manifest: `
kind: FrontProxy
spec:
  rootShard: {ref: {name: kcp}}
  additionalPathMappings:
  - {path: /services/things/, backend: "https://things:6443", backend_server_ca: /etc/kcp-front-proxy/tls/ca/tls.crt,
     proxy_client_cert: /etc/kcp-front-proxy/requestheader-client/tls.crt, proxy_client_key: /etc/kcp-front-proxy/requestheader-client/tls.key}`},
		"an unknown level of the log of a FrontProxy": {`
kind: FrontProxy
spec: {rootShard: {ref: {name: kcp}}, logLevel: 4}`, `unknown field "spec.logLevel"`},
		"an unknown level of the log of a RootShard": {`
kind: RootShard
spec: {external: {hostname: kcp.example.com, port: 443}, etcd: {endpoints: ["http://etcd:2379"]}, logLevel: 4}`, `unknown field "spec.logLevel"`},
		"an unknown level of the log of a Shard": {`
kind: Shard
spec: {rootShard: {ref: {name: kcp}}, etcd: {endpoints: ["http://etcd:2379"]}, logLevel: 4}`, `unknown field "spec.logLevel"`},
		"an unknown level of the log of a CacheServer": {`
kind: CacheServer
spec: {logLevel: 4}`, `unknown field "spec.logLevel"`},
		"an unknown level of the log of a VirtualWorkspace": {`
kind: VirtualWorkspace
spec: {target: {rootShardRef: {name: kcp}}, external: {hostname: views.example.com, port: 443}, logLevel: 4}`, `unknown field "spec.logLevel"`},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(test.manifest), &object.Object); err != nil {
				t.Fatal(err)
			}
			object.SetAPIVersion("operator.kcp.io/v1alpha1")
			object.SetNamespace(operatortest.Namespace)
			object.SetName("former")
			got, config := &warnings{}, rest.CopyConfig(host)
			config.WarningHandler = got
			err := cluster(t, config).Create(t.Context(), object, client.DryRunAll, client.FieldValidation("Warn"))
			if err != nil {
				t.Error(err)
			}
			if warned := slices.ContainsFunc(got.texts, func(text string) bool { return strings.Contains(text, test.warning) }); test.warning != "" && !warned ||
				test.warning == "" && len(got.texts) > 0 {
				t.Errorf("the warnings are %q", got.texts)
			}
		})
	}
}
