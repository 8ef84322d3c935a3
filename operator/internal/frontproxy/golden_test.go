package frontproxy

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// rootShard is the RootShard of the front proxies.
func rootShard() *v1alpha1.RootShard {
	rs := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "kcp"}}
	rs.Spec.External = v1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443, PrivateHostname: "10.1.2.3"}
	rs.Spec.ClusterDomain = "example.local"
	return rs
}

func TestObjectsAreEqualToTheGoldenFiles(t *testing.T) {
	smallest := &v1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "public"}}
	everything := smallest.DeepCopy()
	everything.Spec.External = &v1alpha1.FrontProxyExternalConfig{Hostname: "proxy.example.com", Port: 8443, PrivateHostname: "proxy.internal"}
	everything.Spec.Auth = &v1alpha1.AuthSpec{
		OIDC: &v1alpha1.OIDCConfiguration{IssuerURL: "https://dex.example.com", ClientID: "kcp",
			CAFileRef: &v1alpha1.OIDCCAFileRef{Name: "dex-ca"}},
		TokenAuthFile: &v1alpha1.TokenAuthFile{SecretName: "tokens"},
		DropGroups:    []string{"system:kcp:*", "a,b"}, PassOnGroups: []string{"team:*"},
	}
	everything.Spec.AdditionalPathMappings = []v1alpha1.PathMappingEntry{{Path: "/services/things/", Backend: "https://things:6443",
		BackendServerCA: "/etc/kcp/tls/ca/tls.crt", ProxyClientCert: "/etc/kcp-front-proxy/requestheader-client/tls.crt",
		ProxyClientKey: "/etc/kcp-front-proxy/requestheader-client/tls.key"}}
	everything.Spec.CertificateTemplates = v1alpha1.CertificateTemplateMap{"server": {Spec: &v1alpha1.CertificateSpecTemplate{
		IssuerRef: &v1alpha1.ObjectReference{Name: "public"}, DNSNames: []string{"proxy.example.com"}}}}
	everything.Spec.ServiceTemplate = &v1alpha1.ServiceTemplate{Spec: &v1alpha1.ServiceSpecTemplate{Type: corev1.ServiceTypeLoadBalancer,
		LoadBalancerClass: "example.com/internal", LoadBalancerSourceRanges: []v1alpha1.ServiceSourceRange{"10.0.0.0/8", "fd00::/8"},
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, NodePort: 30443,
		HealthCheckNodePort: 30444, AllocateLoadBalancerNodePorts: new(false), IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
		IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}}}
	everything.Spec.Ingress = &v1alpha1.IngressSpec{ClassName: "nginx", Metadata: v1alpha1.Metadata{
		Annotations: map[string]string{"nginx.ingress.kubernetes.io/ssl-passthrough": "true"}, Labels: map[string]string{"team": "edge"}}}
	everything.Spec.TLSRoute = &v1alpha1.TLSRouteSpec{
		Metadata:   &v1alpha1.Metadata{Annotations: map[string]string{"example.com/route": "public"}},
		ParentRefs: []v1alpha1.GatewayReference{{Name: "own"}, {Name: "edge", Namespace: "gateways", SectionName: "tls", Port: 443}}}
	everything.Spec.NetworkPolicy = &v1alpha1.NetworkPolicySpec{Enabled: true}
	everything.Spec.Autoscaling = &v1alpha1.AutoscalingSpec{MinReplicas: 3, MaxReplicas: 10, TargetCPUUtilizationPercentage: new(int32(70)),
		TargetMemoryUtilizationPercentage: new(int32(90))}
	everything.Spec.Monitoring = &v1alpha1.MonitoringSpec{ServiceMonitor: &v1alpha1.ServiceMonitorSpec{Enabled: true}}
	everything.Spec.Logging = &v1alpha1.LoggingSpec{Level: 2}
	for name, f := range map[string]*v1alpha1.FrontProxy{"smallest": smallest, "everything": everything} {
		p := proxy{FrontProxy: f, root: shard.Root(rootShard())}
		host, port := installation.ProxyAddress(f, rootShard())
		c := p.build(port, map[string]string{"authorities": "7d"}, "registry.example.com/kcp:v1", new(int32(2)))
		set, err := workload.StatefulSet(c)
		if err != nil {
			t.Fatal(err)
		}
		mapping, err := p.mapping()
		if err != nil {
			t.Fatal(err)
		}
		objects := slices.Concat(p.leaves(host), []client.Object{workload.Service(c), set,
			&corev1.ConfigMap{Data: map[string]string{mappingKey: string(mapping)}}}) // as text, which a Secret would encode
		if budget, wanted := workload.PodDisruptionBudget(c); wanted {
			objects = append(objects, budget)
		}
		if policy, wanted := workload.NetworkPolicy(c); wanted {
			objects = append(objects, policy)
		}
		if monitor, wanted := workload.ServiceMonitor(c); wanted {
			objects = append(objects, monitor)
		}
		if autoscaler, wanted := workload.Autoscaler(c); wanted {
			objects = append(objects, autoscaler)
		}
		if ingress, wanted := p.ingress(host); wanted {
			objects = append(objects, ingress)
		}
		if route, wanted := p.route("v1", host, port); wanted {
			objects = append(objects, route)
		}
		operatortest.Golden(t, "testdata/"+name+".golden", objects)
	}
}

// D26: the deprecated hostname counts, also beside an empty address.
func TestAddressesOfFrontProxies(t *testing.T) {
	for _, test := range []struct {
		deprecated string
		external   *v1alpha1.FrontProxyExternalConfig
		host       string
		port       uint32
	}{
		{"", nil, "kcp.example.com", 443},
		{"", &v1alpha1.FrontProxyExternalConfig{}, "kcp.example.com", 443},
		{"old.example.com", &v1alpha1.FrontProxyExternalConfig{}, "old.example.com", 6443},
		{"old.example.com:8443", nil, "old.example.com", 8443},
		{"", &v1alpha1.FrontProxyExternalConfig{Hostname: "new.example.com", Port: 1443}, "new.example.com", 1443},
	} {
		f := &v1alpha1.FrontProxy{Spec: v1alpha1.FrontProxySpec{ExternalHostname: test.deprecated, External: test.external}}
		if host, port := installation.ProxyAddress(f, rootShard()); host != test.host || port != test.port {
			t.Errorf("%q and %+v: got %s:%d", test.deprecated, test.external, host, port)
		}
	}
}
