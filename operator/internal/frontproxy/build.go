package frontproxy

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

const (
	// kind is the Kind in labels.
	kind = "front-proxy"
	// container is the name of the container.
	container = "kcp-front-proxy"
	// rootDirectory has the files that the front proxy writes.
	rootDirectory = "/var/run/kcp"
	directory     = "/etc/kcp-front-proxy/"
	tls           = "/etc/kcp/tls/"
	mappingKey    = "path-mapping.yaml"
	// delay is how long a front proxy that shuts down still accepts new requests: until no load balancer sends any.
	delay = "10s"
)

// proxy is the input of the builders.
type proxy struct {
	*v1alpha1.FrontProxy
	root *shard.Shard
}

// name returns the name of an object of a FrontProxy.
func (p proxy) name(part string) string { return p.workload() + "-" + part }

// workload returns the name of the StatefulSet and of the Service.
func (p proxy) workload() string { return installation.ProxyWorkload(p.Name) }

func (p proxy) base() *workload.Component {
	return &workload.Component{Name: p.workload(), Namespace: p.Namespace, Instance: p.Name, Kind: kind}
}

// labels returns the labels of certificates and Secrets.
func (p proxy) labels() map[string]string {
	return pki.Overlay(p.base().Labels(), map[string]string{installation.ProxyLabel: p.Name})
}

// host returns the DNS name of the Service.
func (p proxy) host() string {
	return p.workload() + "." + p.Namespace + ".svc." + cmp.Or(p.root.Spec.ClusterDomain, "cluster.local")
}

func (p proxy) template(name string) *v1alpha1.CertificateTemplate {
	if template, ok := p.Spec.CertificateTemplates[name]; ok {
		return &template
	}
	return nil
}

// leaves builds the certificate of the server, and the one with which the front proxy calls shards: it says which front proxy this is, and
// shards with its authority believe what the front proxy says about users.
func (p proxy) leaves(external string) []client.Object {
	service := p.workload()
	hosts := []string{"localhost", service, service + "." + p.Namespace, service + "." + p.Namespace + ".svc", p.host(),
		p.root.External.Hostname, p.root.External.PrivateHostname, external}
	if e := p.Spec.External; e != nil {
		hosts = append(hosts, e.PrivateHostname)
	}
	var names, addresses []string
	for _, host := range hosts {
		if net.ParseIP(host) != nil {
			addresses = append(addresses, host)
		} else {
			names = append(names, host)
		}
	}
	request := func(part, issuer string, r pki.Request) client.Object {
		r.Namespace, r.Name, r.Labels, r.Template, r.Issuer = p.Namespace, p.name(part), p.labels(), p.template(part), pki.IssuerNamed(issuer)
		return pki.Certificate(r)
	}
	return []client.Object{
		request(server, p.root.ServerCA(), pki.Request{DNSNames: names, IPAddresses: addresses, Usages: pki.ServerUsages}),
		request(peer, p.root.ProxyCA(), pki.Request{CommonName: shard.ProxyName, URIs: []string{"kcp://proxy/" + p.Name},
			Usages: pki.ClientUsages}),
	}
}

// Names of certificates.
const (
	server = "server"
	peer   = "requestheader"
)

// references lists the Secrets and ConfigMaps in the spec.
func references(f *v1alpha1.FrontProxy) []settings.Reference {
	return slices.Concat(settings.Authorities("caBundleSecretRef", f.Spec.CABundleSecretRef),
		settings.Authorities("clientCABundleRef", f.Spec.ClientCABundleRef), settings.AuthenticationReferences(f.Spec.Auth),
		settings.VolumeReferences(f.Spec.ExtraVolumes))
}

// build builds the input for package workload.
func (p proxy) build(port uint32, inputs map[string]string, image string, replicas *int32) *workload.Component {
	c := p.base()
	c.Image, c.Container, c.Replicas, c.ServicePort = image, container, replicas, int32(port)
	c.Command, c.Args = []string{"/kcp", "front-proxy"}, p.args()
	c.Resources = workload.Resources(defaultResources(), p.Spec.Resources)
	certificate, pair := []string{"tls.crt"}, []string{"tls.crt", "tls.key"}
	c.Files = append([]workload.Files{
		{Name: "server", Secret: p.name(server), Keys: pair, Path: directory + "tls"},
		{Name: "requestheader", Secret: p.name(peer), Keys: pair, Path: directory + "requestheader-client"},
		{Name: "kubeconfig", Secret: p.name("kubeconfig"), Keys: []string{kcpaccess.Key}, Path: directory + "kubeconfig"},
		{Name: "client-ca", Secret: p.name("merged-client-ca"), Keys: certificate, Path: directory + "client-ca"},
		{Name: "ca", Secret: installation.ProxyBundle(p.Name), Keys: certificate, Path: tls + "ca"},
	}, settings.Mounts(references(p.FrontProxy))...)
	if len(p.Spec.AdditionalPathMappings) > 0 {
		c.Files = append(
			c.Files,
			workload.Files{Name: "mapping", Secret: p.name("config"), Keys: []string{mappingKey}, Path: directory + "config"},
		)
	}
	c.Scratch, c.Inputs = []string{rootDirectory, "/tmp"}, inputs
	c.Metrics = workload.Metrics{
		Path:         "/metrics",
		ServerName:   p.host(),
		CASecret:     installation.ProxyBundle(p.Name),
		ClientSecret: p.root.Leaf("metrics-viewer"),
	}
	return workload.Customized(c, &p.Spec.ComponentSpec)
}

func (p proxy) args() []string {
	kubeconfig := directory + "kubeconfig/" + kcpaccess.Key
	a := []string{
		"--root-directory=" + rootDirectory,
		fmt.Sprintf("--secure-port=%d", workload.Port),
		"--root-kubeconfig=" + kubeconfig,
		"--shards-kubeconfig=" + kubeconfig,
		"--tls-cert-file=" + directory + "tls/tls.crt",
		"--tls-private-key-file=" + directory + "tls/tls.key",
		"--client-ca-file=" + directory + "client-ca/tls.crt",
		"--shutdown-delay-duration=" + delay,
		"--logging-format=json",
	}
	if len(p.Spec.AdditionalPathMappings) > 0 {
		a = append(a, "--mapping-file="+directory+"config/"+mappingKey)
	}
	if auth := p.Spec.Auth; auth != nil {
		a = append(a, groups("--authentication-drop-groups=", auth.DropGroups)...)
		a = append(a, groups("--authentication-pass-on-groups=", auth.PassOnGroups)...)
	}
	return slices.Concat(a, settings.LoggingFlags(p.Spec.Logging), settings.AuthenticationFlags(p.Spec.Auth), p.Spec.ExtraArgs)
}

// groups returns a flag with a list, whose value is a line of comma-separated values: a group with a comma is quoted.
func groups(flag string, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	var line bytes.Buffer
	w := csv.NewWriter(&line)
	_ = w.Write(names) // a buffer accepts all writes
	w.Flush()
	return []string{flag + strings.TrimSuffix(line.String(), "\n")}
}

// kubeconfig returns the kubeconfig for the root shard and all other shards.
func (p proxy) kubeconfig() kcpaccess.Files {
	return kcpaccess.Files{URL: p.root.BaseURL(), Authorities: tls + "ca/tls.crt",
		Certificate: directory + "requestheader-client/tls.crt", CertificateKey: directory + "requestheader-client/tls.key"}
}

// mapping returns the mapping file: the paths that shards serve, and the additional ones.
func (p proxy) mapping() ([]byte, error) {
	files := p.kubeconfig()
	var entries []v1alpha1.PathMappingEntry
	for _, path := range []string{"/clusters/", "/services/"} {
		entries = append(entries, v1alpha1.PathMappingEntry{Path: path, Backend: files.URL, BackendServerCA: files.Authorities,
			ProxyClientCert: files.Certificate, ProxyClientKey: files.CertificateKey})
	}
	return yaml.Marshal(append(entries, p.Spec.AdditionalPathMappings...))
}

func defaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}}
}
