// Package shard builds the objects of a shard of kcp, from the fields that all shards have. Its functions are pure: callers read the
// objects that the spec refers to.
package shard

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/workload"
)

const (
	// kindLabel is the prefix, followed by a Kind, of the label with the name of the owning object.
	kindLabel = "operator.kcp.io/"
	// RootKind is the Kind of root shards.
	RootKind = "rootshard"
	// FurtherKind is the Kind of further shards.
	FurtherKind = "shard"
	// RootLabel is the label with the name of the RootShard that an object belongs to.
	RootLabel = kindLabel + RootKind
	// FurtherLabel is the label with the name of a Shard on its Secrets.
	FurtherLabel = kindLabel + FurtherKind
)

// Shard is the input of the builders.
type Shard struct {
	// Namespace and Name of the owning object, and its kind, as in labels.
	Namespace, Name, Kind string
	// Root is the name of the root shard of the installation, whose CAs sign certificates.
	Root string
	Spec *v1alpha1.CommonShardSpec
	// External is the address for clients outside of the cluster.
	External v1alpha1.ExternalConfig
	// RootSecret is the name of the Secret of the CA that signs the other CAs.
	RootSecret string
	// Templates customize certificates.
	Templates v1alpha1.CertificateTemplateMap
	// Image and number of the pods. Nil leaves the number to an autoscaler.
	Image    string
	Replicas *int32
	// Etcd stores the data.
	Etcd settings.Etcd
	// Sharded reports whether the shard is one of several processes of an installation.
	Sharded bool
	// Cache is the cache server of the installation. Nil: the root shard contains it.
	Cache *Cache
	// ViewsURL is the URL of the virtual workspaces. Empty: the shard serves them.
	ViewsURL string
	// Inputs are hashes of the data that the server reads only when it starts.
	Inputs map[string]string
}

// Cache is a cache server, as shards use it.
type Cache struct {
	// Issuer signs the certificates of shards for the cache server, which Template customizes.
	Issuer   string
	Template *v1alpha1.CertificateTemplate
	// Bundle is the Secret with the CAs of its server certificate.
	Bundle string
	URL    string
}

// Container is the name of the server's container in every pod.
const Container = "kcp"

// Root returns the Shard of a RootShard.
func Root(rs *v1alpha1.RootShard) *Shard {
	s := &Shard{
		Namespace: rs.Namespace, Name: rs.Name, Kind: RootKind, Root: rs.Name, Spec: &rs.Spec.CommonShardSpec,
		External: rs.Spec.External, RootSecret: rs.Name + "-ca", Templates: rs.Spec.CertificateTemplates, Replicas: rs.Spec.Replicas,
	}
	if c := rs.Spec.Certificates; c != nil && c.CASecretRef != nil {
		s.RootSecret = c.CASecretRef.Name
	}
	return s
}

// Further returns the Shard of a Shard object, in the installation of its RootShard.
func Further(sh *v1alpha1.Shard, rs *v1alpha1.RootShard) *Shard {
	return &Shard{
		Namespace: sh.Namespace, Name: sh.Name, Kind: FurtherKind, Root: rs.Name, Spec: &sh.Spec.CommonShardSpec,
		External: rs.Spec.External, Templates: sh.Spec.CertificateTemplates, Replicas: sh.Spec.Replicas, Sharded: true,
	}
}

// IsRoot reports whether the shard is the root shard.
func (s *Shard) IsRoot() bool { return s.Kind == RootKind }

// KCPName returns the name of the shard in kcp.
func (s *Shard) KCPName() string {
	if s.IsRoot() {
		return "root"
	}
	return s.Name
}

// WorkloadName returns the name of the StatefulSet and of the Service.
func (s *Shard) WorkloadName() string { return s.prefix() + "kcp" }

// Host returns the DNS name of the Service.
func (s *Shard) Host() string {
	return s.WorkloadName() + "." + s.Namespace + ".svc." + cmp.Or(s.Spec.ClusterDomain, "cluster.local")
}

// BaseURL returns the URL of the shard for other components.
func (s *Shard) BaseURL() string {
	if s.Spec.ShardBaseURL != "" {
		return strings.TrimSuffix(s.Spec.ShardBaseURL, "/")
	}
	return fmt.Sprintf("https://%s:%d", s.Host(), workload.Port)
}

// ExternalURL returns the URL of the installation for clients outside of the cluster.
func (s *Shard) ExternalURL() string {
	return Address(s.External.Hostname, s.External.Port)
}

// PrivateURL returns the URL of the installation for components inside of its network.
func (s *Shard) PrivateURL() string {
	e := s.External
	if e.PrivateHostname == "" {
		return s.ExternalURL()
	}
	return Address(e.PrivateHostname, cmp.Or(e.PrivatePort, e.Port))
}

// Address returns the URL of a host and a port.
func Address(host string, port uint32) string {
	return "https://" + net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
}

// Labels returns the labels of the shard's certificates and Secrets.
func (s *Shard) Labels() map[string]string {
	labels := s.component().Labels()
	labels[kindLabel+s.Kind] = s.Name
	return labels
}

// Selector returns the labels of the pods.
func (s *Shard) Selector() map[string]string { return s.component().Labels() }

func (s *Shard) component() *workload.Component {
	return &workload.Component{Name: s.WorkloadName(), Namespace: s.Namespace, Instance: s.Name, Kind: s.Kind}
}

// Scraped reports whether the metrics have a ServiceMonitor.
func (s *Shard) Scraped() bool {
	return workload.Scraped(s.Spec.Monitoring)
}

// Component returns the input for package workload.
func Component(s *Shard) *workload.Component {
	c := s.component()
	c.Image, c.Container = s.Image, Container
	c.Command, c.Args = []string{"/kcp", "start"}, args(s)
	c.Replicas, c.Resources = s.Replicas, workload.Resources(defaultResources(), s.Spec.Resources)
	c.Files, c.Scratch, c.Inputs = files(s), []string{rootDirectory, "/tmp"}, s.Inputs
	c.Metrics = workload.Metrics{Path: "/metrics", ServerName: s.Host(), CASecret: s.ServerBundle(), ClientSecret: s.leaf(metricsViewer)}
	return workload.Customized(c, &s.Spec.ComponentSpec)
}

func defaultResources() corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return corev1.ResourceRequirements{Requests: list("100m", "256Mi"), Limits: list("2", "2Gi")}
}

// baseHost returns the host in the base URL.
func (s *Shard) baseHost() string {
	if u, err := url.Parse(s.BaseURL()); err == nil {
		return u.Hostname()
	}
	return ""
}
