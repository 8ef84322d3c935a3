package installation_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/frontproxy"
	"github.com/kcplane/kcp/operator/internal/furthershard"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/kubeconfig"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/rootshard"
)

func TestAnInstallationBecomesReadyAndThenNothingIsWritten(t *testing.T) {
	objects := installation()
	w := newWorld(objects...)
	w.settle(t)
	for _, object := range objects {
		w.expect(t, object, "Ready", metav1.ConditionTrue, "", "")
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
	public := operatortest.Read(t, w.Cluster, "public", &v1alpha1.FrontProxy{})
	if s := public.Status; s.URL != "https://kcp.example.com:443" || s.Pods != "2/2" || s.Replicas != 2 ||
		!strings.Contains(s.Selector, "app.kubernetes.io/component=front-proxy") || s.Phase != v1alpha1.PhaseRunning {
		t.Errorf("status: %+v", s)
	}
	if s := operatortest.Read(t, w.Cluster, "cache", &v1alpha1.CacheServer{}).Status; s.RootShard != "kcp" || s.Pods != "1/1" {
		t.Errorf("status: %+v", s)
	}
}

// Every process has the flags with which it finds and trusts the others.
func TestComponentsOfAnInstallationKnowEachOther(t *testing.T) {
	w := newWorld(installation()...)
	w.settle(t)
	for workload, flags := range map[string][]string{
		"kcp-kcp": {"[/kcp start]", "--shard-name=root", "--peer-client-ca-file=", "--shard-client-cert-file=", "--shard-ca-file=", "--cache-kubeconfig=",
			"--requestheader-allowed-names=kcp-front-proxy"},
		"west-shard-kcp": {"[/kcp start]", "--shard-name=west", "--root-shard-kubeconfig-file=", "--peer-client-ca-file=", "--cache-kubeconfig=",
			"--shard-external-url=https://kcp.example.com:443", "--shard-base-url=https://west-shard-kcp.team.svc.cluster.local:6443"},
		"public-front-proxy": {"[/kcp front-proxy]", "--root-kubeconfig=", "--client-ca-file="},
		"cache-cache-server": {"[/kcp cache-server]", "--peer-client-ca-file="},
	} {
		got := w.args(t, workload)
		for _, flag := range flags {
			if !strings.Contains(got, flag) {
				t.Errorf("%s has no %s: %s", workload, flag, got)
			}
		}
	}
	for kubeconfig, url := range map[string]string{
		"west-shard-root-shard-kubeconfig":   "https://kcp-kcp.team.svc.cluster.local:6443",
		"public-front-proxy-kubeconfig":      "https://kcp-kcp.team.svc.cluster.local:6443",
		"west-shard-cache-client-kubeconfig": "https://cache-cache-server.team.svc.cluster.local:6443",
		"kcp-cache-client-kubeconfig":        "https://cache-cache-server.team.svc.cluster.local:6443",
	} {
		secret := operatortest.Read(t, w.Cluster, kubeconfig, &corev1.Secret{})
		if content := string(secret.Data["kubeconfig"]); !strings.Contains(content, "server: "+url+"\n") {
			t.Errorf("%s: %s", kubeconfig, content)
		}
	}
}

// A root shard without others has the flags of a single server, and becomes that of an installation when a component refers to it. It stays
// that, because its store does.
func TestARootShardBecomesThatOfAnInstallation(t *testing.T) {
	w := newWorld(root("kcp"))
	w.settle(t)
	if args := w.args(t, "kcp-kcp"); strings.Contains(args, "--peer-client-ca-file") {
		t.Errorf("no component refers to it: %s", args)
	}
	public := proxy("public")
	public.Namespace = operatortest.Namespace
	w.MustCreate(t, public)
	w.settle(t)
	if args := w.args(t, "kcp-kcp"); !strings.Contains(args, "--peer-client-ca-file") {
		t.Errorf("a front proxy refers to it: %s", args)
	}
	if err := w.Delete(t.Context(), public); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	if args := w.args(t, "kcp-kcp"); !strings.Contains(args, "--peer-client-ca-file") {
		t.Errorf("its store is that of an installation: %s", args)
	}
}

// verifies reports whether the authorities in a Secret accept a certificate.
func (w *world) verifies(t *testing.T, certificate, bundle string) bool {
	t.Helper()
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(operatortest.Read(t, w.Cluster, bundle, &corev1.Secret{}).Data["tls.crt"])
	chain := operatortest.Read(t, w.Cluster, certificate, &corev1.Secret{}).Data["tls.crt"]
	block, rest := pem.Decode(chain)
	intermediates.AppendCertsFromPEM(rest)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: time.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// No certificate is good for more than its purpose.
func TestCertificatesAreAcceptedOnlyForTheirPurpose(t *testing.T) {
	w := newWorld(installation()...)
	w.settle(t)
	const (
		users, peers, proxies = "kcp-merged-client-ca", "kcp-merged-peer-ca", "kcp-merged-requestheader-ca"
		servers, cache        = "kcp-merged-ca-bundle", "cache-cache-server-merged-ca-bundle"
	)
	for certificate, accepted := range map[string]string{
		"kcp-client": peers, "west-shard-client": peers, "public-front-proxy-requestheader": peers + " " + proxies,
		"kcp-cache-client": cache, "west-shard-cache-client": cache, "cache-cache-server-server": cache,
		"kcp-server": servers, "west-shard-server": servers, "public-front-proxy-server": servers, "kcp-kcp-operator": users,
	} {
		for _, bundle := range []string{users, peers, proxies, servers, cache} {
			if got, want := w.verifies(t, certificate, bundle), strings.Contains(" "+accepted+" ", " "+bundle+" "); got != want {
				t.Errorf("%s is accepted with %s: %t", certificate, bundle, got)
			}
		}
	}
	for certificate, uri := range map[string]string{
		"kcp-client": "kcp://shard/root", "west-shard-client": "kcp://shard/west", "west-shard-cache-client": "kcp://shard/west",
		"kcp-cache-client": "kcp://shard/root", "public-front-proxy-requestheader": "kcp://proxy/public",
	} {
		block, _ := pem.Decode(operatortest.Read(t, w.Cluster, certificate, &corev1.Secret{}).Data["tls.crt"])
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil || len(leaf.URIs) != 1 || leaf.URIs[0].String() != uri || len(leaf.Subject.Organization) > 0 {
			t.Errorf("%s: URIs %v, groups %v, %v", certificate, leaf.URIs, leaf.Subject.Organization, err)
		}
	}
}

// D18: a pod has only the keys that it uses.
func TestPodsHaveOnlyTheirOwnKeys(t *testing.T) {
	w := newWorld(installation()...)
	w.settle(t)
	for workload, keys := range map[string]string{
		"west-shard-kcp":     "west-shard-server west-shard-service-account-keys west-shard-client west-shard-cache-client",
		"public-front-proxy": "public-front-proxy-server public-front-proxy-requestheader",
		"cache-cache-server": "cache-cache-server-server",
	} {
		set := operatortest.Read(t, w.Cluster, workload, &appsv1.StatefulSet{})
		var got []string
		for _, v := range set.Spec.Template.Spec.Volumes {
			if v.Secret == nil {
				continue
			}
			for _, item := range v.Secret.Items {
				if item.Key == "tls.key" {
					got = append(got, v.Secret.SecretName)
				}
			}
			if len(v.Secret.Items) == 0 {
				t.Errorf("%s mounts every key of Secret %s", workload, v.Secret.SecretName)
			}
		}
		if strings.Join(got, " ") != keys {
			t.Errorf("%s has the keys %v, want %s", workload, got, keys)
		}
	}
}

func TestBadInputOfAnInstallationIsReported(t *testing.T) {
	at := func(object client.Object, age time.Duration) client.Object {
		object.SetCreationTimestamp(metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-age)))
		return object
	}
	otherCache := further("west")
	otherCache.Spec.Cache = &v1alpha1.CacheConfig{Reference: &v1alpha1.LocalReference{Name: "other"}}
	sameEtcd, ownPrefix := further("west"), further("west")
	sameEtcd.Spec.Etcd = *further("east").Spec.Etcd.DeepCopy()
	ownPrefix.Spec.Etcd = *further("east").Spec.Etcd.DeepCopy()
	ownPrefix.Spec.Etcd.Prefix = "/west"
	cacheInShard := cache("cache")
	cacheInShard.Spec.Etcd = further("east").Spec.Etcd.DeepCopy()
	cacheInShard.Spec.Etcd.Prefix = "/registry"
	inRoot := further("west")
	inRoot.Spec.Etcd = root("kcp").Spec.Etcd
	withCache := func(name string) *v1alpha1.RootShard {
		rs := root(name)
		rs.Spec.Cache = &v1alpha1.CacheConfig{Reference: &v1alpha1.LocalReference{Name: "cache"}}
		return rs
	}
	mapped := func(file string, mounts ...corev1.VolumeMount) *v1alpha1.FrontProxy {
		f := proxy("public")
		f.Spec.AdditionalPathMappings = []v1alpha1.PathMappingEntry{{Path: "/services/things/", Backend: "https://things:6443",
			BackendServerCA: file, ProxyClientCert: "/etc/kcp-front-proxy/requestheader-client/tls.crt",
			ProxyClientKey: "/etc/kcp-front-proxy/requestheader-client/tls.key"}}
		f.Spec.ExtraVolumes = []corev1.Volume{{Name: "things", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		f.Spec.ExtraVolumeMounts = mounts
		return f
	}
	const unused = "/etc/kcp-front-proxy/tls/ca/tls.crt"
	ofOther, otherPort := proxy("first"), proxy("first")
	ofOther.Spec.RootShard, otherPort.Spec.RootShard = of("other"), of("other")
	ofOther.Spec.External = &v1alpha1.FrontProxyExternalConfig{Hostname: "KCP.example.com", Port: 443}
	otherPort.Spec.External = &v1alpha1.FrontProxyExternalConfig{Hostname: "kcp.example.com", Port: 8443}
	monitored := proxy("public")
	monitored.Spec.Monitoring = &v1alpha1.MonitoringSpec{ServiceMonitor: &v1alpha1.ServiceMonitorSpec{Enabled: true}}
	for _, test := range []struct {
		name            string
		object          client.Object
		others          []client.Object
		reason, message string // no reason: the input is good
	}{
		{"a Shard without its RootShard", further("west"), nil, "ReferenceNotFound", "spec.rootShard.ref: there is no RootShard kcp: create it"},
		{"a FrontProxy without its RootShard", proxy("public"), nil, "ReferenceNotFound", "there is no RootShard kcp"},
		{"a RootShard without its cache server", withCache("kcp"), nil, "ReferenceNotFound", "there is no CacheServer cache: create it"},
		{"a Shard with another cache server", otherCache, []client.Object{root("kcp")}, "OtherCache", "spec.cache.ref: all shards"},
		{"two installations with one cache server", at(withCache("other"), 0), []client.Object{at(withCache("kcp"), time.Hour), cache("cache")},
			"CacheInUse", "CacheServer cache is that of RootShard kcp"},
		{"two shards with one etcd", at(sameEtcd, 0), []client.Object{root("kcp"), at(further("east"), time.Hour)}, "EtcdInUse",
			"spec.etcd: Shard east has its data in this etcd: set another prefix"},
		{"two shards with one etcd and two prefixes", at(ownPrefix, 0), []client.Object{root("kcp"), at(further("east"), time.Hour)}, "", ""},
		{"the first of two shards with one etcd", at(further("east"), time.Hour), []client.Object{root("kcp"), at(sameEtcd.DeepCopy(), 0)}, "", ""},
		{"a cache server under the keys of a shard", at(cacheInShard, 0), []client.Object{root("kcp"), at(further("east"), time.Hour)},
			"EtcdInUse", "spec.etcd: Shard east has its data in this etcd: set another prefix"},
		{"a shard in the etcd of its root shard", at(inRoot, 0), []client.Object{at(root("kcp"), time.Hour)}, "EtcdInUse",
			"spec.etcd: RootShard kcp has its data in this etcd: set another prefix"},
		{"two front proxies with one address", at(proxy("public"), 0), []client.Object{root("kcp"), at(proxy("first"), time.Hour)}, "HostnameInUse",
			"spec.external: FrontProxy first of RootShard kcp has the address kcp.example.com:443"},
		{"front proxies of two installations with one address", at(proxy("public"), 0), []client.Object{root("kcp"), root("other"),
			at(ofOther, time.Hour)}, "HostnameInUse", "spec.external: FrontProxy first of RootShard other has the address kcp.example.com:443"},
		{"front proxies of two installations with two addresses", at(proxy("public"), 0), []client.Object{root("kcp"), root("other"),
			at(otherPort, time.Hour)}, "", ""},
		{"a file that no volume has", mapped("/etc/things/ca.crt"), []client.Object{root("kcp")}, "FileMissing",
			"spec.additionalPathMappings[0].backend_server_ca: the pods have no file /etc/things/ca.crt"},
		{"the file of upstream's documentation", mapped(unused), []client.Object{root("kcp")}, "FileMissing", "use /etc/kcp/tls/ca/tls.crt"},
		{"a file in a volume", mapped("/etc/things/ca.crt", corev1.VolumeMount{Name: "things", MountPath: "/etc/things/"}),
			[]client.Object{root("kcp")}, "", ""},
		{"metrics without a user", monitored, []client.Object{root("kcp")}, "NotSupported", "spec.monitoring.serviceMonitor: requires"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(append(test.others, test.object)...)
			w.settle(t)
			if test.reason == "" {
				w.expect(t, test.object, "Ready", metav1.ConditionTrue, "", "")
				return
			}
			w.expect(t, test.object, "ReferenceValid", metav1.ConditionFalse, test.reason, test.message)
			w.expect(t, test.object, "Stalled", metav1.ConditionTrue, test.reason, test.message)
		})
	}
}

// The other components are not watched, so the one that waits looks again.
func TestAComponentUsesWhatTheOlderOneHasGivenUp(t *testing.T) {
	reference := &v1alpha1.CacheConfig{Reference: &v1alpha1.LocalReference{Name: "cache"}}
	first, second := root("kcp"), root("other")
	first.Spec.Cache, second.Spec.Cache = reference, reference
	second.Spec.External.Hostname = "other.example.com"
	public, private, sharing := proxy("public"), proxy("private"), further("west")
	sharing.Spec.Etcd = *root("kcp").Spec.Etcd.DeepCopy()
	world := []client.Object{first, cache("cache"), public, second, private, sharing}
	for i, object := range world {
		object.SetCreationTimestamp(metav1.NewTime(time.Date(2026, 1, 1, i, 0, 0, 0, time.UTC)))
	}
	w := newWorld(world...)
	w.settle(t)
	for _, waits := range []struct {
		object     client.Object
		reason     string
		reconciler reconcile.Reconciler
	}{
		{second, "CacheInUse", &rootshard.Reconciler{Environment: w.environment}},
		{private, "HostnameInUse", &frontproxy.Reconciler{Environment: w.environment}},
		{sharing, "EtcdInUse", &furthershard.Reconciler{Environment: w.environment, Registry: w.registry}},
	} {
		w.expect(t, waits.object, "ReferenceValid", metav1.ConditionFalse, waits.reason, "")
		if again := w.Reconcile(t, waits.reconciler, waits.object.GetName()).RequeueAfter; again == 0 || again > time.Minute {
			t.Errorf("%s is reconciled again after %v", waits.object.GetName(), again)
		}
	}
	if err := w.Delete(t.Context(), public); err != nil {
		t.Fatal(err)
	}
	operatortest.Read(t, w.Cluster, "kcp", first)
	first.Spec.Cache = nil
	w.MustUpdate(t, first)
	w.settle(t)
	w.expect(t, private, "ReferenceValid", metav1.ConditionTrue, "", "")
	w.expect(t, second, "ReferenceValid", metav1.ConditionTrue, "", "")
}

// A RootShard that replaces another one has the same data, until the other one is deleted.
func TestRootShardsWithOneEtcdHaveAWarning(t *testing.T) {
	first, second := root("kcp"), root("next")
	second.Spec.Etcd = *first.Spec.Etcd.DeepCopy()
	first.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	second.CreationTimestamp = metav1.Now()
	w := newWorld(first, second)
	w.settle(t)
	w.expect(t, second, "Ready", metav1.ConditionTrue, "", "")
	w.expect(t, second, "EtcdShared", metav1.ConditionTrue, "SameKeys", "RootShard kcp has the same data in this etcd")
	operatortest.Read(t, w.Cluster, "kcp", first)
	if c := meta.FindStatusCondition(first.Status.Conditions, "EtcdShared"); c != nil {
		t.Errorf("the older RootShard has %+v", c)
	}
	if err := w.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	w.expect(t, second, "EtcdShared", metav1.ConditionFalse, "AsExpected", "")
}

// A Kubeconfig points at the server of its target, and has the authorities with which clients verify it.
func TestKubeconfigsPointAtTheirTarget(t *testing.T) {
	w := newWorld(installation()...)
	w.settle(t)
	bound := ""
	bind := func(_ context.Context, c kcpaccess.Credentials, workspace string, _ kcpaccess.Roles) error {
		bound = c.URL + " " + workspace
		return nil
	}
	reconciler := &kubeconfig.Reconciler{Client: w.Cluster, Live: w.Cluster, Recorder: w.Events, Bind: bind}
	for _, test := range []struct {
		name     string
		target   v1alpha1.KubeconfigTarget
		contexts map[string]string
		bundle   string
	}{
		{"at-root", v1alpha1.KubeconfigTarget{RootShardRef: &v1alpha1.LocalReference{Name: "kcp"}}, map[string]string{
			"default": "https://kcp-kcp.team.svc.cluster.local:6443/clusters/root:org", "base": "https://kcp-kcp.team.svc.cluster.local:6443",
			"shard-base": "https://kcp-kcp.team.svc.cluster.local:6443", "external": "https://kcp.example.com:443/clusters/root:org",
		}, "kcp-merged-ca-bundle"},
		{"at-shard", v1alpha1.KubeconfigTarget{ShardRef: &v1alpha1.LocalReference{Name: "west"}}, map[string]string{
			"default":    "https://west-shard-kcp.team.svc.cluster.local:6443/clusters/root:org",
			"base":       "https://west-shard-kcp.team.svc.cluster.local:6443",
			"shard-base": "https://west-shard-kcp.team.svc.cluster.local:6443",
		}, "west-shard-merged-ca-bundle"},
		{"at-proxy", v1alpha1.KubeconfigTarget{FrontProxyRef: &v1alpha1.LocalReference{Name: "public"}}, map[string]string{
			"default": "https://kcp.example.com:443/clusters/root:org", "base": "https://kcp.example.com:443",
			"external": "https://kcp.example.com:443/clusters/root:org",
			"internal": "https://public-front-proxy.team.svc.cluster.local:443/clusters/root:org",
		}, "public-front-proxy-merged-ca-bundle"},
	} {
		k := named(&v1alpha1.Kubeconfig{}, test.name)
		k.Namespace = operatortest.Namespace
		k.Spec = v1alpha1.KubeconfigSpec{Target: test.target, TargetWorkspace: "root:org", Username: "ada",
			SecretRef: v1alpha1.LocalReference{Name: test.name + "-secret"}, Authorization: &v1alpha1.KubeconfigAuthorization{
				ClusterRoleBindings: v1alpha1.KubeconfigClusterRoleBindings{ClusterRoles: []string{"view"}}}}
		k.Spec.Validity.Duration.Duration = time.Hour
		w.MustCreate(t, k)
		w.Reconcile(t, reconciler, test.name)
		w.Certify(t)
		bound = ""
		w.Reconcile(t, reconciler, test.name)
		config, err := clientcmd.Load(operatortest.Read(t, w.Cluster, test.name+"-secret", &corev1.Secret{}).Data["kubeconfig"])
		if err != nil {
			t.Fatal(err)
		}
		servers, bundle := map[string]string{}, operatortest.Read(t, w.Cluster, test.bundle, &corev1.Secret{}).Data["tls.crt"]
		for name, context := range config.Contexts {
			cluster := config.Clusters[context.Cluster]
			if servers[name] = cluster.Server; !bytes.Equal(cluster.CertificateAuthorityData, bundle) {
				t.Errorf("%s: the context %s has other authorities than Secret %s", test.name, name, test.bundle)
			}
		}
		if diff := cmp.Diff(test.contexts, servers); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if bound != "https://kcp-kcp.team.svc.cluster.local:6443 root:org" {
			t.Errorf("%s: roles are bound in %q", test.name, bound)
		}
	}
}

// Components without an image have that of the RootShard, as soon as it has become ready with it.
func TestComponentsFollowTheImageOfTheRootShard(t *testing.T) {
	w := newWorld(installation()...)
	w.settle(t)
	rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
	rs.Spec.Image = &v1alpha1.ImageSpec{Tag: "v1.1.0"}
	rs.Generation++
	w.MustUpdate(t, rs)
	w.reconcile(t)
	used := func(workload string) string {
		return operatortest.Read(t, w.Cluster, workload, &appsv1.StatefulSet{}).Spec.Template.Spec.Containers[0].Image
	}
	if got := used("kcp-kcp"); got != "registry.example.com/kcp:v1.1.0" {
		t.Errorf("the root shard has the image %s", got)
	}
	if got := used("west-shard-kcp"); got != image {
		t.Errorf("the root shard has not become ready, and the shard has the image %s", got)
	}
	rs = operatortest.Read(t, w.Cluster, "kcp", rs)
	rs.Status.Image = "registry.example.com/kcp:v1.1.0"
	w.MustUpdateStatus(t, rs)
	w.reconcile(t)
	for _, workload := range []string{"west-shard-kcp", "east-shard-kcp", "public-front-proxy"} {
		if got := used(workload); got != "registry.example.com/kcp:v1.1.0" {
			t.Errorf("%s has the image %s", workload, got)
		}
	}
	if got := used("cache-cache-server"); got != newImage {
		t.Errorf("the cache server has the image %s", got)
	}
}
