// Package shard builds what a shard of kcp consists of, from what the root shard and all others have in common. It decides
// everything and reads nothing: who calls it has looked up what the spec refers to.
package shard

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/workload"
)

const (
	// kindLabel and a Kind are the label that has the name of the object which something was made for.
	kindLabel = "operator.kcp.io/"
	// RootKind is the Kind of root shards.
	RootKind = "rootshard"
	// RootLabel is the label with the name of the RootShard that an object was made for.
	RootLabel = kindLabel + RootKind
)

// Shard is what the builders know.
type Shard struct {
	// Namespace and Name of the object that asks for the shard, and what it is, in the word for labels.
	Namespace, Name, Kind string
	// Root is the name of the root shard of the installation, whose authorities sign.
	Root string
	Spec *v1alpha1.CommonShardSpec
	// External is how clients outside of the cluster reach the installation.
	External v1alpha1.ExternalConfig
	// RootSecret names the Secret of the authority that signs the authorities.
	RootSecret string
	// Templates are what users want to be different in certificates.
	Templates v1alpha1.CertificateTemplateMap
	// Image to run, Replicas to run it in. Nil leaves the number to an autoscaler.
	Image    string
	Replicas *int32
	// Etcd holds the data.
	Etcd Etcd
	// Inputs are hashes of what the server reads only when it starts.
	Inputs map[string]string
}

// Etcd is where the data is, and the Secret with tls.crt, tls.key and ca.crt for it, if it asks for certificates.
type Etcd struct {
	Endpoints []string
	Secret    string
	Prefix    string
	// Trust is the Secret, and TrustKey the key in it, with who vouches for the members, in place of ca.crt. Both may be empty.
	Trust, TrustKey string
}

// Container is the name of that of the server, in every pod.
const Container = "kcp"

// Root describes a root shard.
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

// WorkloadName is the name of the StatefulSet and of the Service.
func (s *Shard) WorkloadName() string { return s.Name + "-kcp" }

// Host is the name of the Service.
func (s *Shard) Host() string {
	return s.WorkloadName() + "." + s.Namespace + ".svc." + cmp.Or(s.Spec.ClusterDomain, "cluster.local")
}

// BaseURL is how other components reach the shard.
func (s *Shard) BaseURL() string {
	if s.Spec.ShardBaseURL != "" {
		return strings.TrimSuffix(s.Spec.ShardBaseURL, "/")
	}
	return fmt.Sprintf("https://%s:%d", s.Host(), workload.Port)
}

// ExternalURL is how clients outside of the cluster reach the installation.
func (s *Shard) ExternalURL() string {
	return address(s.External.Hostname, s.External.Port)
}

// PrivateURL is how components reach the installation from inside of its network.
func (s *Shard) PrivateURL() string {
	e := s.External
	if e.PrivateHostname == "" {
		return s.ExternalURL()
	}
	return address(e.PrivateHostname, cmp.Or(e.PrivatePort, e.Port))
}

func address(host string, port uint32) string {
	return "https://" + net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
}

// Labels of the shard's certificates and Secrets.
func (s *Shard) Labels() map[string]string {
	labels := s.component().Labels()
	labels[kindLabel+s.Kind] = s.Name
	return labels
}

// Selector has the labels of the pods.
func (s *Shard) Selector() map[string]string { return s.component().Labels() }

func (s *Shard) component() *workload.Component {
	return &workload.Component{Name: s.WorkloadName(), Namespace: s.Namespace, Instance: s.Name, Kind: s.Kind}
}

// UsesEtcd reports whether pods reach the etcd of the spec, its prefix included, with the credentials that the spec names. Annotations are
// those of the pods.
func (s *Shard) UsesEtcd(annotations map[string]string, pod corev1.PodSpec) bool {
	var server *corev1.Container
	for i := range pod.Containers {
		if pod.Containers[i].Name == Container {
			server = &pod.Containers[i]
		}
	}
	if server == nil || !slices.Equal(etcdArgsOf(server.Args), etcdArgsOf(args(s))) {
		return false
	}
	for _, r := range References(s) {
		if r.volume != etcdVolume && r.volume != etcdTrustVolume {
			continue
		}
		mounted := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == r.volume && v.Secret != nil && v.Secret.SecretName == r.Secret
		})
		if !mounted || len(r.Hashed()) > 0 && annotations[workload.InputAnnotation+r.Input()] != s.Inputs[r.Input()] {
			return false
		}
	}
	return true
}

// etcdArgsOf returns the flags of a command line that are about etcd.
func etcdArgsOf(args []string) []string {
	var found []string
	for _, arg := range args {
		if slices.ContainsFunc(etcdFlags, func(flag string) bool { return strings.HasPrefix(arg, flag) }) {
			found = append(found, arg)
		}
	}
	return found
}

// Scraped tells whether a Prometheus reads the metrics.
func (s *Shard) Scraped() bool {
	return workload.Scraped(s.Spec.Monitoring)
}

// Component is what runs.
func Component(s *Shard) *workload.Component {
	c := s.component()
	c.Image, c.Container = s.Image, Container
	if s.Spec.Image != nil {
		c.PullSecrets = s.Spec.Image.ImagePullSecrets
	}
	c.Command, c.Args = []string{"/kcp", "start"}, args(s)
	c.Replicas, c.Resources = s.Replicas, workload.Resources(defaultResources(), s.Spec.Resources)
	c.Files, c.Scratch, c.Inputs = files(s), []string{rootDirectory, "/tmp"}, s.Inputs
	c.Extra = s.Spec.ExtraSpec
	c.Template, c.Service = s.Spec.DeploymentTemplate, s.Spec.ServiceTemplate
	c.PDB, c.NetworkPolicy, c.Monitoring = s.Spec.PDB, s.Spec.NetworkPolicy, s.Spec.Monitoring
	c.Metrics = workload.Metrics{Path: "/metrics", ServerName: s.Host(), CASecret: s.ServerBundle(), ClientSecret: s.leaf(metricsViewer)}
	return c
}

func defaultResources() corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("2", "2Gi")}
}

// baseHost is the host that the base URL names.
func (s *Shard) baseHost() string {
	if u, err := url.Parse(s.BaseURL()); err == nil {
		return u.Hostname()
	}
	return ""
}
