package installation_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// lifetime of an installation with all kinds. Each phase begins in the final state of the one before.
var lifetime = []struct {
	name string
	do   func(*testing.T, *world)
	is   func(*testing.T, *world)
}{
	{"it is created", create, ready},
	{"it is upgraded", func(t *testing.T, w *world) { w.upgrade(t, nil) }, func(t *testing.T, w *world) {
		ready(t, w)
		if got := w.upgraded(t); !slices.Equal(got, train) {
			t.Errorf("these have the new image: %v", got)
		}
	}},
	{"all authorities and keys are new", func(t *testing.T, w *world) {
		w.deleteSecrets(t, func(name string) bool {
			return strings.HasSuffix(name, "-ca") && !strings.Contains(name, "-merged-") || strings.HasSuffix(name, "-service-account")
		})
	}, rotating(v1alpha1.RotatingRenewable)},
	{"all certificates are renewed", renew, rotating(v1alpha1.RotatingRenewed)},
	{"former keys are accepted no more", func(t *testing.T, w *world) {
		w.deleteSecrets(t, func(name string) bool {
			return strings.Contains(name, "-merged-") && !strings.HasPrefix(name, "public-") && !strings.Contains(name, "-shard-") ||
				strings.HasSuffix(name, "-service-account-keys")
		})
	}, rotating("AsExpected")},
	{"specs need less", change, func(t *testing.T, w *world) {
		ready(t, w)
		w.leaves(t, false, "west-shard-cache-client", "east-shard-cache-client", "kcp-cache-client", "public-front-proxy-config", "at-proxy-secret")
		if _, former := w.bound["root:at-proxy uid-*v1alpha1.Kubeconfig-at-proxy"]; former || len(w.bound) != 3 {
			t.Errorf("the roles are %v", w.bound)
		}
	}},
	{"a shard is drained", func(t *testing.T, w *world) {
		w.registry.(*registry).stays = map[string]string{"c00": "a test"}
		w.drain(t, true)
	}, func(t *testing.T, w *world) {
		if n := len(w.registry.(*registry).migrations); n != 2 {
			t.Errorf("%d logical clusters move", n)
		}
	}},
	{"the drain is stopped", func(t *testing.T, w *world) { w.drain(t, false) }, func(t *testing.T, w *world) {
		if kcp := w.registry.(*registry); len(kcp.migrations) > 0 || kcp.shards["west"].Cordoned {
			t.Errorf("kcp has %v and %v", kcp.shards, kcp.migrations)
		}
		ready(t, w)
	}},
	{"the shard is drained completely", func(t *testing.T, w *world) {
		w.registry.(*registry).stays = nil
		w.drain(t, true)
	}, func(t *testing.T, w *world) {
		w.expect(t, further("west"), "Drained", metav1.ConditionTrue, "Empty", "")
	}},
	{"the shard is deleted", func(t *testing.T, w *world) {
		w.remove(t, viewsOf("views", "west"), further("west"), named(&v1alpha1.Kubeconfig{}, "at-shard"))
	}, func(t *testing.T, w *world) {
		if kcp := w.registry.(*registry); len(kcp.shards) != 1 {
			t.Errorf("kcp has %v", kcp.shards)
		}
		w.leaves(t, true, "west", "views")
	}},
	{"the front proxy is deleted", func(t *testing.T, w *world) {
		w.remove(t, proxy("public"), named(&v1alpha1.Kubeconfig{}, "at-proxy"))
	}, func(t *testing.T, w *world) { w.leaves(t, true, "public", "at-proxy") }},
	{"all is deleted", func(t *testing.T, w *world) {
		kcp := w.registry.(*registry)
		kcp.shards["east"] = kcpaccess.Registered{BaseURL: kcp.shards["east"].BaseURL, Responds: true}
		w.remove(t, further("east"), root("kcp"), cache("cache"), named(&v1alpha1.Kubeconfig{}, "at-root"))
	}, func(t *testing.T, w *world) { w.leaves(t, true, "") }},
}

// An operator may end before and after each of its writes, and another one continues: in all phases of an installation, objects in the
// cluster and in kcp are the same as if it had not ended, and no operator writes another content than the one before was about to write.
func TestOperatorsThatEndAtEachWriteLeaveTheSame(t *testing.T) {
	one, mortal := newLifetime(), newLifetime()
	mortal.deaths = operatortest.NewDeaths()
	for _, phase := range lifetime {
		if !t.Run(phase.name, func(t *testing.T) {
			for _, w := range []*world{one, mortal} {
				phase.do(t, w)
				w.rest(t)
				phase.is(t, w)
			}
			if diff := cmp.Diff(one.state(t), mortal.state(t)); diff != "" {
				t.Errorf("after operators that end:\n%s", diff)
			}
		}) {
			break
		}
	}
	for _, differs := range mortal.deaths.Differ {
		t.Error(differs)
	}
	for what, times := range mortal.deaths.Begun {
		if times < 2 {
			t.Errorf("no operator ended after: %s", what)
		}
	}
}

func newLifetime() *world {
	w := newWorld()
	w.CountGenerations()
	w.registry = &registry{shards: map[string]kcpaccess.Registered{}, held: map[string]int64{"west": 3, "east": 1}}
	return w
}

// create creates an installation with all kinds, of which two components have an etcd that the operator runs.
func create(t *testing.T, w *world) {
	t.Helper()
	objects := everyKind()
	for _, object := range objects {
		switch o := object.(type) {
		case *v1alpha1.CacheServer:
			o.Spec.Etcd = &v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{}}
		case *v1alpha1.Shard:
			if o.Name == "west" {
				o.Spec.Etcd = v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{}}
			}
		case *v1alpha1.FrontProxy:
			o.Spec.AdditionalPathMappings = []v1alpha1.PathMappingEntry{{Path: "/services/things/", Backend: "https://things:6443",
				BackendServerCA: "/etc/kcp/tls/ca/tls.crt", ProxyClientCert: "/etc/kcp-front-proxy/requestheader-client/tls.crt",
				ProxyClientKey: "/etc/kcp-front-proxy/requestheader-client/tls.key"}}
		}
	}
	for _, k := range kubeconfigs() {
		objects = append(objects, k)
	}
	for _, object := range objects {
		object.SetNamespace(operatortest.Namespace)
		object.SetGeneration(1)
		w.MustCreate(t, object)
	}
}

// change removes fields from specs, and changes where a Kubeconfig writes.
func change(t *testing.T, w *world) {
	t.Helper()
	for _, object := range w.everything(t) {
		switch o := object.(type) {
		case *v1alpha1.RootShard:
			o.Spec.Cache = nil
		case *v1alpha1.FrontProxy:
			o.Spec.AdditionalPathMappings = nil
		case *v1alpha1.Kubeconfig:
			if o.Name != "at-proxy" {
				continue
			}
			o.Spec.SecretRef.Name, o.Spec.TargetWorkspace = "other-secret", "root:other"
		default:
			continue
		}
		object.SetGeneration(object.GetGeneration() + 1)
		w.MustUpdate(t, object)
	}
}

// ready checks that all objects are Ready.
func ready(t *testing.T, w *world) {
	t.Helper()
	for _, object := range w.everything(t) {
		switch o := object.(type) {
		case *v1alpha1.CacheServer, *v1alpha1.RootShard, *v1alpha1.Shard, *v1alpha1.VirtualWorkspace, *v1alpha1.FrontProxy:
			w.expect(t, o, "Ready", metav1.ConditionTrue, "", "")
		case *v1alpha1.Kubeconfig:
			if o.Status.Phase != v1alpha1.PhaseReady {
				t.Errorf("Kubeconfig %s: %+v", o.Name, o.Status)
			}
		}
	}
}

// rotating returns a check for the progress of a rotation.
func rotating(reason string) func(*testing.T, *world) {
	status := metav1.ConditionTrue
	if reason == "AsExpected" {
		status = metav1.ConditionFalse
	}
	return func(t *testing.T, w *world) {
		t.Helper()
		ready(t, w)
		for _, object := range []client.Object{cache("cache"), root("kcp")} {
			w.expect(t, object, "Rotating", status, reason, "")
		}
	}
}

// deleteSecrets deletes the Secrets with selected names.
func (w *world) deleteSecrets(t *testing.T, selected func(name string) bool) {
	t.Helper()
	for _, object := range w.everything(t) {
		secret, ok := object.(*corev1.Secret)
		if !ok || strings.Contains(secret.Name, "-etcd-") || !selected(secret.Name) {
			continue
		}
		if err := w.Delete(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	w.Certify(t)
}

// renew renews all certificates but those of authorities.
func renew(t *testing.T, w *world) {
	t.Helper()
	for _, object := range w.everything(t) {
		if c, ok := object.(*certmanager.Certificate); ok && !c.Spec.IsCA {
			c.Status.Conditions = []certmanager.CertificateCondition{{Type: "Issuing", Status: cmmeta.ConditionTrue}}
			w.MustUpdateStatus(t, c)
		}
	}
	w.Certify(t)
}

// drain sets spec.drain of the Shard west.
func (w *world) drain(t *testing.T, on bool) {
	t.Helper()
	west := operatortest.Read(t, w.Cluster, "west", &v1alpha1.Shard{})
	west.Spec.Drain = on
	west.Generation++
	w.MustUpdate(t, west)
}

// remove deletes objects in turn.
func (w *world) remove(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		object.SetNamespace(operatortest.Namespace)
		if err := w.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		w.rest(t)
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s remains: %v", object, object.GetName(), err)
		}
	}
}

// leaves checks that no objects remain whose names begin with a prefix. Secrets may: keys remain for a component that is created again.
func (w *world) leaves(t *testing.T, secrets bool, prefixes ...string) {
	t.Helper()
	for _, object := range w.everything(t) {
		_, secret := object.(*corev1.Secret)
		if !(secret && secrets) && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(object.GetName(), p) }) {
			t.Errorf("%T %s remains", object, object.GetName())
		}
	}
}

// state returns all objects and what kcp has, without what is different each time.
func (w *world) state(t *testing.T) map[string]string {
	t.Helper()
	all, kcp := map[string]string{}, w.registry.(*registry)
	all["kcp"] = fmt.Sprint(kcp.shards, slices.Sorted(maps.Keys(kcp.migrations)), slices.Sorted(slices.Values(kcp.moved)),
		w.bound)
	for _, object := range w.everything(t) {
		name := fmt.Sprintf("%T %s", object, object.GetName())
		object.SetResourceVersion("")
		object.SetManagedFields(nil)
		if secret, ok := object.(*corev1.Secret); ok {
			all[name+" data"] = described(secret)
			secret.Data = nil
		}
		encoded, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = changing.ReplaceAllString(string(encoded), "")
	}
	return all
}

// changing are times, and hashes of keys.
var changing = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|[0-9a-f]{16,}`)

// described describes the data of a Secret: which certificates and keys it has.
func described(secret *corev1.Secret) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		all = append(all, key+": "+text(string(secret.Data[key])))
	}
	return strings.Join(all, "\n")
}

// encodedBlocks are blocks of PEM in a kubeconfig.
var encodedBlocks = regexp.MustCompile(`[A-Za-z0-9+/=]{100,}`)

func text(content string) string {
	if !strings.Contains(content, "-----BEGIN") {
		return encodedBlocks.ReplaceAllStringFunc(content, func(block string) string {
			decoded, err := base64.StdEncoding.DecodeString(block)
			if err != nil {
				return block
			}
			return text(string(decoded))
		})
	}
	var blocks []string
	for block, rest := pem.Decode([]byte(content)); block != nil; block, rest = pem.Decode(rest) {
		description := block.Type
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			description += fmt.Sprint(" of ", c.Subject, " by ", c.Issuer)
		}
		blocks = append(blocks, description)
	}
	return strings.Join(blocks, ", ")
}
